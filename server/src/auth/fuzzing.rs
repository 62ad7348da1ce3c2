//! Decoders of this folder for [`crate::fuzzing`].
//!
//! Bytes at random get past no signature. So there are two kinds of input: bytes as a client would send them,
//! and bytes that describe a token or a certificate, which is then signed with keys that are known here
//! (those of RFC 7515 and RFC 8037, and one more). An accepted one is compared with its description.

mod certificates;
mod files;
mod headers;
mod tokens;

pub use certificates::{certificate, certificate_seeds};
pub use files::{credentials, credentials_seeds};
pub(crate) use headers::identity_headers;
pub use tokens::{token, token_seeds};

/// Changes single bytes: each change is a place, counted by two bytes, and what is added to the byte there.
fn changed(original: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for change in changes.chunks_exact(3) {
        let place = usize::from(change[0]) << 8 | usize::from(change[1]);
        let length = bytes.len();
        bytes[place % length] = bytes[place % length].wrapping_add(change[2]);
    }
    bytes
}
