//! The public keys of tokens: a JSON Web Key Set (RFC 7517).
//!
//! Each key has an id and one algorithm, EdDSA (Ed25519) or ES256. A token names the id, and nothing else of
//! it says how it is verified.

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
    /// Reads a key set. Returns also why some of its keys are not used: a set may have keys for other
    /// purposes, and of kinds that others know (RFC 7517, section 5).
    ///
    /// # Errors
    /// The mistake in it.
    pub(super) fn parse(json: &[u8], config: &TokenConfig) -> Result<(Self, Vec<String>), String> {
        let set: Value = serde_json::from_slice(json).map_err(|error| format!("it is no JSON: {error}"))?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or("there is no list `keys` in it")?;
        let (mut parsed, mut ignored) = (Vec::<TokenKey>::new(), Vec::new());
        for (number, key) in (1..).zip(keys) {
            let key = key.as_object().ok_or_else(|| format!("key {number}: it is no object"))?;
            if let Some(private) = PRIVATE.into_iter().find(|name| key.contains_key(*name)) {
                let what = format!("it has the member `{private}` of a private key: give public keys alone");
                return Err(format!("key {number}: {what}"));
            }
            match TokenKey::parse(key, config) {
                Err(why) => ignored.push(format!("key {number} is not used: {why}")),
                Ok(key) if parsed.iter().any(|other| other.id == key.id) => {
                    return Err(format!("key {number}: there is another key with the kid {:?}", key.id));
                }
                Ok(key) => parsed.push(key),
            }
        }
        if parsed.is_empty() {
            let why = ignored.join("; ");
            return Err(if why.is_empty() { "there is no key in it".to_owned() } else { why });
        }
        Ok((Self(parsed), ignored))
    }

    /// The key with this id.
    pub(super) fn find(&self, id: &str) -> Option<&TokenKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl TokenKey {
    fn parse(key: &Map<String, Value>, config: &TokenConfig) -> Result<Self, String> {
        let member = |name: &str| key.get(name).and_then(Value::as_str);
        let id = member("kid").filter(|id| !id.is_empty()).ok_or("it has no `kid`")?;
        if member("use").is_some_and(|purpose| purpose != "sig") {
            return Err("its `use` is not \"sig\"".to_owned());
        }
        let operations = key.get("key_ops").map(|all| all.as_array().cloned().unwrap_or_default());
        if operations.is_some_and(|all| !all.iter().any(|operation| operation == "verify")) {
            return Err("its `key_ops` has no \"verify\"".to_owned());
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

    fn parse(keys: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let config = TokenConfig { issuer: "i".to_owned(), audience: "a".to_owned() };
        let json = format!("{{\"keys\":[{}]}}", keys.join(","));
        let (keys, ignored) = TokenKeys::parse(json.as_bytes(), &config)?;
        Ok((keys.0.into_iter().map(|key| key.id).collect(), ignored))
    }

    // The keys are those of RFC 8037, appendix A, and RFC 7515, appendix A.3.
    #[test]
    fn keys_of_both_algorithms_are_taken() {
        assert_eq!(parse(&[ED, EC]), Ok((vec!["k1".to_owned(), "k2".to_owned()], vec![])));
    }

    #[test]
    fn keys_that_are_of_no_use_here_are_left_out_with_the_reason() {
        const KIND: &str = "give `alg` EdDSA with";
        let rsa = r#"{"kty":"RSA","use":"enc","kid":"k1","alg":"RSA-OAEP","n":"AQAB","e":"AQAB"}"#;
        for (other, expected) in [
            (rsa.to_owned(), "its `use` is not \"sig\""),
            (rsa.replace("enc", "sig"), KIND),
            (EC.replace("P-256", "P-384").replace("ES256", "ES384"), KIND),
            (EC.replace(r#""alg":"ES256","#, ""), KIND),
            (ED.replace("EdDSA", "Ed25519"), KIND),
            (ED.replace("EdDSA", "ES256"), KIND),
            (ED.replace("EdDSA", "HS256"), KIND),
            (ED.replace("EdDSA", "none"), KIND),
            (ED.replace("Ed25519", "Ed448"), KIND),
            (ED.replace("OKP", "AKP"), KIND),
            (ED.replace(r#""kid":"k1","#, ""), "it has no `kid`"),
            (ED.replace(r#""k1""#, r#""""#), "it has no `kid`"),
            (ED.replace(r#""k1""#, "7"), "it has no `kid`"),
            (EC.replace("verify", "deriveKey"), "its `key_ops` has no \"verify\""),
            (ED.replace("11qY", ""), "its `x` or `y` has not 32 bytes in Base64url without padding"),
            (EC.replace("f83O", "f83P"), "it is no point of its curve"),
            ("{}".to_owned(), "it has no `kid`"),
        ] {
            let good = ED.replace("\"k1\"", "\"good\"");
            let (taken, ignored) = parse(&[&other, &good]).unwrap();
            assert_eq!(taken, ["good"], "{other}");
            assert!(
                ignored[0].starts_with(&format!("key 1 is not used: {expected}")),
                "{other}: {ignored:?}"
            );
            // Alone it is no set.
            assert_eq!(parse(&[&other]).unwrap_err(), ignored[0]);
        }
    }

    #[test]
    fn a_set_that_is_a_mistake_is_refused_as_a_whole() {
        let private = ED.replace(r#""kid""#, r#""d":"x","kid""#);
        let refused = parse(&[EC, &private]).unwrap_err();
        assert_eq!(refused, "key 2: it has the member `d` of a private key: give public keys alone");
        let symmetric = r#"{"kty":"oct","kid":"s","alg":"HS256","k":"c2VjcmV0"}"#;
        assert!(parse(&[symmetric, ED]).unwrap_err().contains("the member `k`"));
        assert_eq!(parse(&[ED, ED]).unwrap_err(), "key 2: there is another key with the kid \"k1\"");
        assert_eq!(parse(&[ED, "7"]).unwrap_err(), "key 2: it is no object");
        assert_eq!(parse(&[]).unwrap_err(), "there is no key in it");
    }
}
