//! Files of credentials for servers, clients and members of a cluster: PEM, and the conditions for a root of
//! trust; and why a server cannot be reached with them. The feature `development` adds the making of
//! credentials: CAs, certificates and tokens for development and tests, apart from the server that verifies
//! them.
//!
//! A root that cannot be used is an error that names its file when it is read. TLS itself checks no root: an
//! expired root, or one that is no CA, would let peers in, and a file without roots would appear as untrusted
//! peers.

#[cfg(feature = "development")]
pub mod development;
mod files;
mod pem;
#[cfg(feature = "development")]
pub mod private_files;
mod unreachable;
mod x509;

pub use files::{
    CERTIFICATE, CLIENT_CAS, FileError, KEY, MAX_TOKEN_LIFETIME, REVOCATION_LISTS, SERVER_CAS, TOKEN_KEYS,
    identity, missing, read, roots,
};
pub use pem::{items, private_key};
pub use unreachable::{Fault, fault};
pub use x509::{Certificate, seconds_since_1970};
