//! The public keys of tokens: a JSON Web Key Set (RFC 7517).
//!
//! Each key has an id and one algorithm, EdDSA (Ed25519) or ES256. A token names the id, and nothing else of it says how
//! it is verified.

use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};

use crate::config::TokenConfig;

/// The keys, by their ids.
#[derive(Debug)]
pub(super) struct TokenKeys(Vec<TokenKey>);

/// One key.
#[derive(Debug)]
pub(super) struct TokenKey {
    pub(super) id: String,
    pub(super) decoding: DecodingKey,
    pub(super) validation: Validation,
    /// Digest of algorithm and key: whether another key has the same id.
    pub(super) fingerprint: [u8; 32],
}

/// Members of private keys and of keys that both sides have (RFC 7518, section 6).
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

impl TokenKeys {
    /// Reads a key set.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(json: &[u8], config: &TokenConfig) -> Result<Self, String> {
        let set: Value = serde_json::from_slice(json).map_err(|error| format!("it is no JSON: {error}"))?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or("there is no list `keys` in it")?;
        let mut parsed: Vec<TokenKey> = Vec::new();
        for (number, key) in (1..).zip(keys) {
            let key = key.as_object().ok_or_else(|| "it is no object".to_owned());
            let key = key.and_then(|key| TokenKey::parse(key, config));
            let key = key.map_err(|error| format!("key {number}: {error}"))?;
            if parsed.iter().any(|other| other.id == key.id) {
                return Err(format!("key {number}: there is another key with the kid {:?}", key.id));
            }
            parsed.push(key);
        }
        if parsed.is_empty() {
            return Err("there is no key in it".to_owned());
        }
        Ok(Self(parsed))
    }

    /// The key with this id.
    pub(super) fn find(&self, id: &str) -> Option<&TokenKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl TokenKey {
    fn parse(key: &Map<String, Value>, config: &TokenConfig) -> Result<Self, String> {
        let member = |name: &str| key.get(name).and_then(Value::as_str);
        if let Some(private) = PRIVATE.into_iter().find(|name| key.contains_key(*name)) {
            return Err(format!("it has the member `{private}` of a private key: give public keys alone"));
        }
        let id = member("kid").filter(|id| !id.is_empty()).ok_or("it has no `kid`")?;
        if member("use").is_some_and(|purpose| purpose != "sig") {
            return Err("its `use` is not \"sig\"".to_owned());
        }
        let kind = (member("alg"), member("kty"), member("crv"));
        let (algorithm, verification, bytes): (_, &'static dyn VerificationAlgorithm, _) = match kind {
            (Some("EdDSA"), Some("OKP"), Some("Ed25519")) => {
                (Algorithm::EdDSA, &ED25519, coordinate(member("x"))?)
            }
            (Some("ES256"), Some("EC"), Some("P-256")) => {
                let point = [vec![4], coordinate(member("x"))?, coordinate(member("y"))?].concat();
                (Algorithm::ES256, &ECDSA_P256_SHA256_FIXED, point)
            }
            _ => {
                return Err("give `alg` EdDSA with `kty` OKP and `crv` Ed25519, or ES256 with EC and P-256"
                    .to_owned());
            }
        };
        // A point that is not on the curve would only show as a bad signature of every token.
        ParsedPublicKey::new(verification, &*bytes).map_err(|_| "it is no point of its curve".to_owned())?;
        let decoding = match algorithm {
            Algorithm::EdDSA => DecodingKey::from_ed_der(&bytes),
            _ => DecodingKey::from_ec_der(&bytes),
        };
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "nbf", "iss", "aud", "sub"]);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        // Times are checked with the other claims, without leeway.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        let mut hashed = format!("{algorithm:?} ").into_bytes();
        hashed.extend(&bytes);
        let fingerprint = digest::digest(&SHA256, &hashed);
        let fingerprint = fingerprint.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Ok(Self { id: id.to_owned(), decoding, validation, fingerprint })
    }
}

/// 32 bytes in Base64url.
fn coordinate(text: Option<&str>) -> Result<Vec<u8>, String> {
    let bytes = text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).filter(|bytes| bytes.len() == 32);
    bytes.ok_or_else(|| "its `x` or `y` has not 32 bytes in Base64url without padding".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = r#"{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"k1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    const EC: &str = r#"{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k2","use":"sig","key_ops":["verify"],
        "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;

    fn parse(keys: &[&str]) -> Result<Vec<String>, String> {
        let config = TokenConfig { issuer: "i".to_owned(), audience: "a".to_owned() };
        let json = format!("{{\"keys\":[{}]}}", keys.join(","));
        let keys = TokenKeys::parse(json.as_bytes(), &config)?;
        Ok(keys.0.into_iter().map(|key| key.id).collect())
    }

    // The keys are those of RFC 8037, appendix A, and RFC 7515, appendix A.3.
    #[test]
    fn keys_of_both_algorithms_are_taken() {
        assert_eq!(parse(&[ED, EC]), Ok(vec!["k1".to_owned(), "k2".to_owned()]));
    }

    #[test]
    fn other_keys_are_refused_with_the_reason() {
        for (old, new, expected) in [
            (r#""kid":"k1","#, "", "key 1: it has no `kid`"),
            (r#""k1""#, r#""""#, "key 1: it has no `kid`"),
            (
                r#""kid""#,
                r#""d":"x","kid""#,
                "key 1: it has the member `d` of a private key: give public keys alone",
            ),
            (r#""kid""#, r#""use":"enc","kid""#, "key 1: its `use` is not \"sig\""),
            ("11qY", "", "key 1: its `x` or `y` has not 32 bytes in Base64url without padding"),
        ] {
            assert_eq!(parse(&[&ED.replace(old, new)]).unwrap_err(), expected);
        }
        for (old, new) in [("EdDSA", "ES256"), ("EdDSA", "HS256"), ("EdDSA", "none"), ("Ed25519", "Ed448")] {
            let refused = parse(&[&ED.replace(old, new)]).unwrap_err();
            assert!(refused.starts_with("key 1: give `alg` EdDSA with"), "{refused}");
        }
        assert_eq!(parse(&[&EC.replace("f83O", "f83P")]).unwrap_err(), "key 1: it is no point of its curve");
        assert_eq!(parse(&[ED, ED]).unwrap_err(), "key 2: there is another key with the kid \"k1\"");
        assert_eq!(parse(&[]).unwrap_err(), "there is no key in it");
        let symmetric = r#"{"kty":"oct","kid":"s","alg":"HS256","k":"c2VjcmV0"}"#;
        assert!(parse(&[symmetric]).unwrap_err().contains("the member `k`"));
    }
}
