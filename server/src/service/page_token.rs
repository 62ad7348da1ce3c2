//! The page tokens of List: where the next page begins, for the server alone to read.
//!
//! A page begins behind an instance that the caller may not know of. So a token is the place of that one,
//! encrypted for this caller (AES-128-GCM with a key that lives as long as the server, and a random nonce):
//! it tells nothing, and another caller cannot use it. After a restart of the server a token is refused, and
//! the caller begins again.

use std::fmt;
use std::fmt::Write as _;

use aws_lc_rs::aead::{AES_128_GCM, Aad, RandomizedNonceKey};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

/// Seals and opens page tokens.
pub(crate) struct PageTokens(RandomizedNonceKey);

impl fmt::Debug for PageTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PageTokens")
    }
}

/// Bytes of a nonce and of the authentication tag.
const NONCE: usize = 12;
const TAG: usize = 16;
/// The most bytes that a token stands for.
const CONTENT: usize = 64;

impl PageTokens {
    /// With a key of its own.
    pub(crate) fn new() -> Self {
        let key: [u8; 16] = rand::random();
        Self(RandomizedNonceKey::new(&AES_128_GCM, &key).expect("16 bytes are a key of AES-128"))
    }

    /// A token that stands for these bytes, for this caller.
    ///
    /// # Errors
    /// INTERNAL, if there are no random numbers.
    pub(crate) fn seal(&self, bytes: &[u8], caller: &str) -> Result<String, RpcRefusal> {
        debug_assert!(bytes.len() <= CONTENT, "such a token would not be opened");
        let mut bytes = bytes.to_vec();
        let sealed = self.0.seal_in_place_append_tag(Aad::from(caller), &mut bytes);
        let nonce = sealed.map_err(|_| RpcRefusal::internal())?;
        let mut token = String::with_capacity(2 * (NONCE + bytes.len()));
        for byte in nonce.as_ref().iter().chain(&bytes) {
            let _ = write!(token, "{byte:02x}");
        }
        Ok(token)
    }

    /// The value that `read` finds in the bytes for which this token stands.
    ///
    /// # Errors
    /// MALFORMED, if this server has not given the token to this caller since its start, or for something
    /// else.
    pub(crate) fn open<T>(
        &self,
        token: &str,
        caller: &str,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, RpcRefusal> {
        let open = || {
            let mut bytes = from_hex(token)?;
            let mut sealed = bytes.split_off(NONCE);
            let nonce = aws_lc_rs::aead::Nonce::try_assume_unique_for_key(&bytes).ok()?;
            read(self.0.open_in_place(nonce, Aad::from(caller), &mut sealed).ok()?)
        };
        open().ok_or_else(not_ours)
    }
}

fn not_ours() -> RpcRefusal {
    let why = "page_token is none that this server gave you since it started: begin again without one";
    RpcRefusal::new(RefusalReason::Malformed, why)
}

/// The bytes of a token, which has no more than may be.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let lengths = 2 * (NONCE + TAG)..=2 * (NONCE + TAG + CONTENT);
    if !lengths.contains(&text.len())
        || !text.len().is_multiple_of(2)
        || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_for_its_caller_on_its_server_and_tells_nothing() {
        let tokens = PageTokens::new();
        let place = [7; 16];
        let token = tokens.seal(&place, "p1").unwrap();
        let open = |tokens: &PageTokens, token, caller| {
            tokens.open(token, caller, |bytes| <[u8; 16]>::try_from(bytes).ok())
        };
        assert_eq!(open(&tokens, &token, "p1").unwrap(), place);
        assert_ne!(tokens.seal(&place, "p1").unwrap(), token, "not even that it is the same page");
        let longer = tokens.seal(&[7; 24], "p1").unwrap();
        let forged = format!("{}{}", &token[..token.len() - 1], if token.ends_with('0') { '1' } else { '0' });
        for (tokens, caller, token) in [
            (&tokens, "p2", token.as_str()),
            (&PageTokens::new(), "p1", &token),
            (&tokens, "p1", &forged),
            (&tokens, "p1", &longer),
            (&tokens, "p1", &token[2..]),
            (&tokens, "p1", "01234567-89ab-cdef-0123-456789abcdef"),
            (&tokens, "p1", &"\u{e9}".repeat(44)),
        ] {
            assert_eq!(open(tokens, token, caller).unwrap_err().reason, RefusalReason::Malformed);
        }
    }
}
