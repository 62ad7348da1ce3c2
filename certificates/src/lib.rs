//! Files of certificates, as servers, clients and members of a cluster read them: PEM, and what a root of trust must be.
//!
//! A root that cannot be used is an error that names its file when it is read. TLS itself looks at no root: one that has
//! expired, or is no CA, would let peers in, and a file without any would show as peers that nobody trusts.

mod files;
mod pem;
mod x509;

pub use files::{FileError, identity, read, roots};
pub use pem::{items, private_key};
pub use x509::{Certificate, seconds_since_1970};
