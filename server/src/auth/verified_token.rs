//! What a token proves.

use super::principal::Principal;
use super::roles::Rights;

/// What a token proves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    pub(crate) principal: Principal,
    /// To these the rights of the principal are narrowed.
    pub(crate) scope: Rights,
    /// From this moment on it proves nothing any more; in seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) key_id: String,
    pub(super) key_fingerprint: [u8; 32],
}

#[cfg(test)]
impl VerifiedToken {
    pub(super) fn of_test(principal: &str) -> Self {
        Self {
            principal: Principal::new(principal),
            scope: Rights::ALL,
            expires: u64::MAX,
            key_id: String::new(),
            key_fingerprint: [0; 32],
        }
    }
}
