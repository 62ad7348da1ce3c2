//! Tokens for viewers of the live page: the server makes them itself, for whoever may look, and they count there alone.
//!
//! The key is made when the server starts and is kept nowhere, so that a restart ends all of them. They are verified as
//! other tokens are: with the denied principals and the roles of the credentials in force.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::json;

use super::principal::Principal;
use super::roles::Rights;
use super::store::seconds_since_1970;
use super::token_issuer::TokenIssuer;
use super::token_keys::TokenKeys;
use super::tokens::Tokens;
use super::verified_token::VerifiedToken;
use crate::config::TokenConfig;

/// How long a token is valid at most, in seconds.
const LIFETIME: u64 = 3_600;
/// How many verified tokens are remembered.
const CACHED: usize = 4_096;

/// See the module.
pub(crate) struct ViewerTokens {
    issuer: TokenIssuer,
    /// What its tokens say of it: another server has another audience.
    claims: TokenConfig,
}

impl fmt::Debug for ViewerTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewerTokens").finish_non_exhaustive()
    }
}

/// A token of a viewer.
pub(crate) struct ViewerToken {
    pub(crate) token: String,
    /// In seconds since 1970.
    pub(crate) expires: u64,
}

impl ViewerTokens {
    /// With a key of its own.
    pub(super) fn new() -> Self {
        let name = format!("page-{:032x}", rand::random::<u128>());
        Self {
            issuer: TokenIssuer::new(&name).expect("a key of Ed25519 can always be made"),
            claims: TokenConfig { issuer: "stickycas-page".to_owned(), audience: name },
        }
    }

    /// A token of this principal, which narrows its rights to these and expires with the token that it was asked for with, if that is
    /// sooner. `None`: it cannot be signed.
    pub(crate) fn token(
        &self,
        principal: &Principal,
        scope: Rights,
        asked_with: Option<&VerifiedToken>,
    ) -> Option<ViewerToken> {
        let now = seconds_since_1970();
        let expires = asked_with.map_or(u64::MAX, |token| token.expires).min(now + LIFETIME);
        self.sign(principal, scope, now, expires)
    }

    fn sign(&self, principal: &Principal, scope: Rights, now: u64, expires: u64) -> Option<ViewerToken> {
        let claims = json!({
            "iss": self.claims.issuer,
            "aud": self.claims.audience,
            "sub": principal.as_str(),
            "scope": scope.viewing().scope(),
            "iat": now,
            "nbf": now,
            "exp": expires,
        });
        let token = self.issuer.sign(&claims).ok()?;
        Some(ViewerToken { token, expires })
    }

    /// What verifies its tokens, in a generation of credentials with these denied principals.
    pub(super) fn verifier(&self, denied: Arc<BTreeSet<Principal>>) -> Tokens {
        let keys = json!({ "keys": [self.issuer.public_key()] }).to_string();
        let (keys, _) = TokenKeys::parse(keys.as_bytes(), &self.claims).expect("it is a key of our own");
        Tokens::for_viewers(keys, denied, CACHED)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::TokenError;
    use super::*;

    #[test]
    fn a_token_counts_for_an_hour_at_its_own_server() {
        let (ours, other) = (ViewerTokens::new(), ViewerTokens::new());
        let ann = Principal::new("ann");
        let made = ours.token(&ann, Rights::ALL, None).unwrap();
        let (tokens, now) = (ours.verifier(Arc::default()), seconds_since_1970());
        let verified = tokens.verify(made.token.as_bytes(), now).unwrap();
        assert_eq!((verified.principal.as_str(), verified.expires), ("ann", made.expires));
        assert!(verified.for_viewer && made.expires <= now + LIFETIME);
        assert_eq!(verified.scope, Rights { admin: false, ..Rights::ALL });
        let verify = |tokens: Tokens, at| tokens.verify(made.token.as_bytes(), at).unwrap_err();
        assert_eq!(verify(ours.verifier(Arc::default()), made.expires), TokenError::Expired);
        assert_eq!(verify(other.verifier(Arc::default()), now), TokenError::UnknownKey);
        let denied = Arc::new(BTreeSet::from([ann.clone()]));
        assert_eq!(verify(ours.verifier(denied), now), TokenError::Denied);
        // A token that was asked for with another one does not outlive it.
        let mut short = VerifiedToken::of_test("ann");
        short.expires = now + 5;
        assert_eq!(ours.token(&ann, Rights::ALL, Some(&short)).unwrap().expires, now + 5);
    }
}
