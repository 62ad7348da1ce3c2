//! From the parts of a request to its [`Principal`], and what the principal may do (SPEC section 10).

mod active_sessions;
pub(crate) mod audit;
mod authenticator;
mod certificate;
mod client_cas;
mod credentials;
mod folder;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod principal;
mod revocation_lists;
mod roles;
mod store;
mod token_cache;
mod token_keys;
mod tokens;
mod verifier;

pub(crate) use active_sessions::{RevocationReason, StreamProof};
pub(crate) use authenticator::{Authenticator, Identity, Peer};
pub(crate) use certificate::{ClientIdentity, is_trust_domain};
pub(crate) use credentials::Credentials;
pub use folder::CredentialsError;
pub(crate) use principal::Principal;
pub(crate) use roles::{Rights, Roles};
pub(crate) use store::{CredentialStore, Registration};
pub(crate) use token_cache::VerifiedToken;
