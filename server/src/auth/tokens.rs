//! Bearer tokens (JWT, RFC 7519): the principal that one proves, the time for which it does, and its rights.
//!
//! A token names one of the configured keys; the key says which algorithm verifies it. A token with keys or
//! addresses of keys is refused; they are not merely ignored.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest::{self, SHA256};
use jsonwebtoken::errors::ErrorKind;
use serde::Deserialize;
use stickycas_certificates::MAX_TOKEN_LIFETIME;
use stickycas_proto::principal::is_principal_name;

use super::principal::Principal;
use super::roles::Rights;
use super::token_cache::VerifiedToken;
use super::token_cache::{TokenCache, TokenHash};
use super::token_keys::TokenKeys;

/// The longest token.
const MAX_TOKEN_BYTES: usize = 4 * 1024;

/// Verifies tokens with the keys of one generation of credentials.
#[derive(Debug)]
pub(crate) struct Tokens {
    keys: TokenKeys,
    denied: Arc<BTreeSet<Principal>>,
    verified: TokenCache,
}

/// The reason for which a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token has {0} bytes: at most {MAX_TOKEN_BYTES} may be")]
    TooLong(usize),
    #[error("it is no token: give a JWT that is signed by EdDSA or ES256")]
    Undecodable,
    #[error("the header of the token has `{0}`: how it is verified is fixed by the configured keys")]
    Header(&'static str),
    #[error("the header of the token has no `kid`")]
    NoKeyId,
    #[error("the token names a key that is not configured")]
    UnknownKey,
    #[error("the token is not signed by the algorithm of its key")]
    Algorithm,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the claims of the token are not exp, nbf and iat as whole numbers, iss, aud and sub as texts")]
    Claims,
    #[error("the token is of another issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the `sub` of the token is no name of a principal")]
    Subject,
    #[error("the token is not valid yet, or was issued in the future")]
    NotYetValid,
    #[error("the token has expired")]
    Expired,
    #[error("the token is valid for longer than {MAX_TOKEN_LIFETIME} s")]
    Lifetime,
    #[error("the principal is denied by the server's configuration")]
    Denied,
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
    nbf: u64,
    iat: u64,
    /// One text, as RFC 7519 has it; the library would take a list too, and compares it with the configured
    /// one.
    #[serde(rename = "iss")]
    _issuer: String,
    sub: String,
    scope: Option<String>,
}

impl Tokens {
    /// Remembers at most so many tokens.
    pub(super) fn new(keys: TokenKeys, denied: Arc<BTreeSet<Principal>>, cached: usize) -> Self {
        Self { keys, denied, verified: TokenCache::new(cached) }
    }

    /// The claims of this token, if it was verified before and has not expired.
    pub(crate) fn known(&self, token: &[u8], now: u64) -> Option<Arc<VerifiedToken>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        self.verified.get(&hash(token)).filter(|verified| now < verified.expires)
    }

    /// Verifies a token at this moment, in seconds since 1970, and remembers it.
    ///
    /// # Errors
    /// The reason for which it proves nothing.
    pub(crate) fn verify(&self, token: &[u8], now: u64) -> Result<Arc<VerifiedToken>, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong(token.len()));
        }
        let verified = Arc::new(self.read(token, now)?);
        self.verified.insert(hash(token), verified.clone());
        Ok(verified)
    }

    /// Whether a token that an older generation has verified would be good in this one.
    ///
    /// # Errors
    /// The reason for which it would not be.
    pub(crate) fn check(&self, verified: &VerifiedToken) -> Result<(), TokenError> {
        let key = self.keys.find(&verified.key_id).ok_or(TokenError::UnknownKey)?;
        if key.fingerprint != verified.key_fingerprint {
            return Err(TokenError::UnknownKey);
        }
        if self.denied.contains(&verified.principal) { Err(TokenError::Denied) } else { Ok(()) }
    }

    /// The number of verified tokens that are remembered.
    pub(crate) fn cached(&self) -> usize {
        self.verified.len()
    }

    fn read(&self, token: &[u8], now: u64) -> Result<VerifiedToken, TokenError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Undecodable)?;
        for (given, name) in [
            (header.jku.is_some(), "jku"),
            (header.jwk.is_some(), "jwk"),
            (header.x5u.is_some(), "x5u"),
            (header.x5c.is_some(), "x5c"),
            (header.crit.is_some(), "crit"),
        ] {
            if given {
                return Err(TokenError::Header(name));
            }
        }
        let key = self.keys.find(&header.kid.ok_or(TokenError::NoKeyId)?).ok_or(TokenError::UnknownKey)?;
        let claims = jsonwebtoken::decode::<Claims>(token, &key.decoding, &key.validation);
        let claims = claims.map_err(|error| of_library(error.kind()))?.claims;
        if claims.exp.saturating_sub(claims.iat) > MAX_TOKEN_LIFETIME {
            return Err(TokenError::Lifetime);
        }
        if now < claims.nbf || now < claims.iat {
            return Err(TokenError::NotYetValid);
        }
        if now >= claims.exp {
            return Err(TokenError::Expired);
        }
        if !is_principal_name(claims.sub.as_bytes()) {
            return Err(TokenError::Subject);
        }
        let principal = Principal::new(&claims.sub);
        if self.denied.contains(&principal) {
            return Err(TokenError::Denied);
        }
        Ok(VerifiedToken {
            principal,
            scope: claims.scope.as_deref().map_or(Rights::ALL, Rights::of_scope),
            expires: claims.exp,
            key_id: key.id.clone(),
            key_fingerprint: key.fingerprint,
        })
    }
}

fn of_library(error: &ErrorKind) -> TokenError {
    match error {
        ErrorKind::InvalidSignature => TokenError::Signature,
        ErrorKind::InvalidAlgorithm => TokenError::Algorithm,
        ErrorKind::InvalidIssuer => TokenError::Issuer,
        ErrorKind::InvalidAudience => TokenError::Audience,
        ErrorKind::Json(_) | ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            TokenError::Claims
        }
        _ => TokenError::Undecodable,
    }
}

fn hash(token: &[u8]) -> TokenHash {
    digest::digest(&SHA256, token).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
    use serde_json::{Value, json};
    use stickycas_certificates::development::TokenIssuer;

    use super::*;
    use crate::config::TokenConfig;

    const NOW: u64 = 1_000_000;

    /// Two issuers of the two algorithms, and what verifies their tokens.
    struct Issuers {
        ed: TokenIssuer,
        ec: TokenIssuer,
    }

    impl Issuers {
        fn new() -> Self {
            let issuer = |id: &str, algorithm: &'static SignatureAlgorithm| {
                TokenIssuer::of_key(KeyPair::generate_for(algorithm).unwrap(), id.to_owned()).unwrap()
            };
            Self { ed: issuer("ed", &PKCS_ED25519), ec: issuer("ec", &PKCS_ECDSA_P256_SHA256) }
        }

        fn tokens(&self, denied: &[&str]) -> Tokens {
            let config = TokenConfig { issuer: "issuer".to_owned(), audience: "us".to_owned() };
            let keys = json!({"keys": [self.ed.public_key(), self.ec.public_key()]}).to_string();
            let (keys, _) = TokenKeys::parse(keys.as_bytes(), &config).unwrap();
            let denied = denied.iter().map(|name| Principal::new(name)).collect();
            Tokens::new(keys, Arc::new(denied), 100)
        }
    }

    fn claims() -> Value {
        json!({"iss": "issuer", "aud": "us", "sub": "ann", "iat": NOW - 5, "nbf": NOW - 5, "exp": NOW + 5})
    }

    fn with(changes: &Value) -> Value {
        let mut claims = claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    #[test]
    fn a_token_of_each_algorithm_proves_its_subject() {
        let issuers = Issuers::new();
        let tokens = issuers.tokens(&["bob"]);
        for issuer in [&issuers.ed, &issuers.ec] {
            let token = issuer.sign(&with(&json!({"scope": "process", "aud": ["them", "us"]}))).unwrap();
            let verified = tokens.verify(token.as_bytes(), NOW).unwrap();
            assert_eq!(verified.principal.as_str(), "ann");
            assert_eq!((verified.scope, verified.expires), (Rights::of_scope("process"), NOW + 5));
        }
        let of_bob = issuers.ed.sign(&with(&json!({"sub": "bob"}))).unwrap();
        assert_eq!(tokens.verify(of_bob.as_bytes(), NOW), Err(TokenError::Denied));
    }

    #[test]
    fn claims_that_are_wrong_or_missing_are_refused() {
        let issuers = Issuers::new();
        let tokens = issuers.tokens(&[]);
        let refused = |changes: &Value| {
            let token = issuers.ed.sign(&with(changes)).unwrap();
            tokens.verify(token.as_bytes(), NOW).unwrap_err()
        };
        for name in ["exp", "nbf", "iat", "sub", "iss", "aud"] {
            assert_eq!(refused(&json!({name: null})), TokenError::Claims, "without {name}");
        }
        for (name, value, expected) in [
            ("exp", json!(1.5), TokenError::Claims),
            ("exp", json!("1000005"), TokenError::Claims),
            ("iat", json!(-1), TokenError::Claims),
            ("iss", json!("other"), TokenError::Issuer),
            ("iss", json!(["issuer"]), TokenError::Claims),
            ("aud", json!("them"), TokenError::Audience),
            ("aud", json!(["them"]), TokenError::Audience),
            ("sub", json!(""), TokenError::Subject),
            ("sub", json!("a b"), TokenError::Subject),
            ("sub", json!(".."), TokenError::Subject),
            ("exp", json!(NOW - 5 + MAX_TOKEN_LIFETIME + 1), TokenError::Lifetime),
            ("iat", json!(NOW + 1), TokenError::NotYetValid),
        ] {
            assert_eq!(refused(&json!({name: value})), expected, "{name} = {value}");
        }
        let long = issuers.ed.sign(&with(&json!({"x": "x".repeat(MAX_TOKEN_BYTES)}))).unwrap();
        assert_eq!(tokens.verify(long.as_bytes(), NOW), Err(TokenError::TooLong(long.len())));
        assert_eq!(tokens.cached(), 0);
    }

    #[test]
    fn the_clock_counts_to_the_second() {
        let issuers = Issuers::new();
        let tokens = issuers.tokens(&[]);
        let token = issuers.ed.sign(&with(&json!({"iat": NOW - 9, "nbf": NOW, "exp": NOW + 10}))).unwrap();
        let at = |now| tokens.verify(token.as_bytes(), now).map(|verified| verified.expires);
        assert_eq!(at(NOW - 1), Err(TokenError::NotYetValid));
        assert!(at(NOW).is_ok() && at(NOW + 9).is_ok());
        assert_eq!(at(NOW + 10), Err(TokenError::Expired));
        // One that is remembered expires at the same moment.
        assert!(tokens.known(token.as_bytes(), NOW + 9).is_some());
        assert_eq!(tokens.known(token.as_bytes(), NOW + 10), None);
        let longest = json!({"iat": NOW, "nbf": NOW, "exp": NOW + MAX_TOKEN_LIFETIME});
        let longest = issuers.ed.sign(&with(&longest)).unwrap();
        assert!(tokens.verify(longest.as_bytes(), NOW).is_ok());
    }

    #[test]
    fn the_key_fixes_the_algorithm() {
        let issuers = Issuers::new();
        let tokens = issuers.tokens(&[]);
        let refused = |token: &str| tokens.verify(token.as_bytes(), NOW).unwrap_err();
        let header = |algorithm, id: &str| Header { kid: Some(id.to_owned()), ..Header::new(algorithm) };
        let by_ed = |header: &Header| issuers.ed.sign_with(header, &claims()).unwrap();
        // HMAC with the bytes of the public key, as the key set shows them.
        for secret in [issuers.ed.public_key()["x"].as_str().unwrap().as_bytes(), b"ed"] {
            let (header, key) = (header(Algorithm::HS256, "ed"), EncodingKey::from_secret(secret));
            let hmac = jsonwebtoken::encode(&header, &claims(), &key).unwrap();
            assert_eq!(refused(&hmac), TokenError::Algorithm);
        }
        assert_eq!(refused(&by_ed(&header(Algorithm::EdDSA, "ec"))), TokenError::Algorithm);
        assert_eq!(refused(&by_ed(&header(Algorithm::EdDSA, "other"))), TokenError::UnknownKey);
        assert_eq!(refused(&by_ed(&Header::new(Algorithm::EdDSA))), TokenError::NoKeyId);
        let other = Issuers::new();
        assert_eq!(refused(&other.ed.sign(&claims()).unwrap()), TokenError::Signature);
        let unsigned = |header: &Value| {
            use base64::Engine as _;
            let encode = |json: String| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json);
            format!("{}.{}.", encode(header.to_string()), encode(claims().to_string()))
        };
        assert_eq!(refused(&unsigned(&json!({"alg": "none", "kid": "ed"}))), TokenError::Undecodable);
        assert_eq!(refused(&unsigned(&json!({"alg": "EdDSA", "kid": "ed"}))), TokenError::Signature);
        for garbage in ["", "a.b.c", "x", "..", "\u{e9}.\u{e9}.\u{e9}"] {
            assert_eq!(refused(garbage), TokenError::Undecodable, "{garbage:?}");
        }
    }

    #[test]
    fn a_token_brings_no_keys() {
        let issuers = Issuers::new();
        let tokens = issuers.tokens(&[]);
        let plain = || Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::EdDSA) };
        let own = serde_json::from_value(issuers.ed.public_key()).unwrap();
        for (header, name) in [
            (Header { jku: Some("https://example.org".to_owned()), ..plain() }, "jku"),
            (Header { jwk: Some(own), ..plain() }, "jwk"),
            (Header { x5u: Some("https://example.org".to_owned()), ..plain() }, "x5u"),
            (Header { x5c: Some(vec![]), ..plain() }, "x5c"),
            (Header { crit: Some(vec!["exp".to_owned()]), ..plain() }, "crit"),
        ] {
            let token = issuers.ed.sign_with(&header, &claims()).unwrap();
            assert_eq!(tokens.verify(token.as_bytes(), NOW), Err(TokenError::Header(name)));
        }
    }

    #[test]
    fn a_new_generation_checks_key_and_principal_again() {
        let (issuers, others) = (Issuers::new(), Issuers::new());
        let token = issuers.ed.sign(&claims()).unwrap();
        let verified = issuers.tokens(&[]).verify(token.as_bytes(), NOW).unwrap();
        assert_eq!(issuers.tokens(&["bob"]).check(&verified), Ok(()));
        assert_eq!(issuers.tokens(&["ann"]).check(&verified), Err(TokenError::Denied));
        assert_eq!(
            others.tokens(&[]).check(&verified),
            Err(TokenError::UnknownKey),
            "the id alone is the same"
        );
        assert_eq!(issuers.tokens(&[]).known(token.as_bytes(), NOW), None);
    }
}
