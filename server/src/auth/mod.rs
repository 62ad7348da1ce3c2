//! From the parts of a request to its [`Principal`], and what the principal may do (SPEC section 10).

mod authenticator;
mod principal;
mod roles;

pub(crate) use authenticator::Authenticator;
pub(crate) use principal::Principal;
pub(crate) use roles::Roles;
