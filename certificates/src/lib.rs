//! Files of certificates for servers, clients and members of a cluster: PEM, and the conditions for a root of
//! trust.
//!
//! A root that cannot be used is an error that names its file when it is read. TLS itself checks no root: an
//! expired root, or one that is no CA, would let peers in, and a file without roots would appear as untrusted
//! peers.

mod files;
mod pem;
mod x509;

pub use files::{FileError, identity, read, roots};
pub use pem::{items, private_key};
pub use x509::{Certificate, seconds_since_1970};
