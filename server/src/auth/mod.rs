//! From the parts of a request to its [`Principal`], and what the principal may do (SPEC section 10).

mod authenticator;
mod certificate;
mod credentials;
mod development;
mod principal;
mod roles;
mod store;
mod verifier;

pub(crate) use authenticator::Authenticator;
pub(crate) use certificate::{ClientIdentity, is_trust_domain};
pub use credentials::{CredentialFolder, CredentialsError};
pub use development::{Certified, DevelopmentCas, DevelopmentError};
pub(crate) use principal::Principal;
pub(crate) use roles::Roles;
pub(crate) use store::{CredentialStore, Registration, identify};
