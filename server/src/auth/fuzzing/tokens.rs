//! Tokens: as they come, described and signed, and good ones that were changed.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use stickycas_certificates::MAX_TOKEN_LIFETIME;
use stickycas_proto::principal::is_principal_name;

use super::changed;
use crate::auth::principal::Principal;
use crate::auth::roles::Rights;
use crate::auth::token_cache::VerifiedToken;
use crate::auth::token_keys::TokenKeys;
use crate::auth::tokens::Tokens;
use crate::config::TokenConfig;

/// The moment at which tokens are verified.
const NOW: u64 = 1_000_000;
const ISSUER: &str = "issuer";
const AUDIENCE: &str = "us";
const DENIED: &str = "bob";

/// The private key of RFC 8037, appendix A.1, behind what says of which algorithm it is.
const ED25519: (&[u8], &str) = (
    b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20",
    "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
);
/// That of RFC 7515, appendix A.3, with its public key behind it.
const P256: (&[u8], &str) = (
    b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\
      \x04\x6d\x30\x6b\x02\x01\x01\x04\x20",
    "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
);
const P256_PUBLIC: [&str; 2] =
    ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];

/// The keys that the server of this test knows.
pub(super) const KEY_SET: &str = r#"{"keys":[
    {"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"ed","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"EC","crv":"P-256","alg":"ES256","kid":"ec","use":"sig",
        "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

struct Setup {
    tokens: Tokens,
    ed: EncodingKey,
    ec: EncodingKey,
    /// A good token of each key.
    good: [String; 2],
}

static SETUP: LazyLock<Setup> = LazyLock::new(|| {
    let (keys, _) = TokenKeys::parse(KEY_SET.as_bytes(), &config()).expect("it is a key set");
    let denied = Arc::new(BTreeSet::from([Principal::new(DENIED)]));
    let base64 = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("it is Base64");
    let ed = EncodingKey::from_ed_der(&[ED25519.0, &base64(ED25519.1)].concat());
    let [x, y] = P256_PUBLIC.map(base64);
    let public = [b"\xa1\x44\x03\x42\x00\x04", &*x, &*y].concat();
    let ec = EncodingKey::from_ec_der(&[P256.0, &base64(P256.1), &public].concat());
    let claims = good_claims().to_string();
    let good = [
        signed(r#"{"alg":"EdDSA","kid":"ed"}"#, &claims, &ed, Algorithm::EdDSA),
        signed(r#"{"alg":"ES256","kid":"ec"}"#, &claims, &ec, Algorithm::ES256),
    ];
    Setup { tokens: Tokens::new(keys, denied, 100), ed, ec, good }
});

pub(super) fn config() -> TokenConfig {
    TokenConfig { issuer: ISSUER.to_owned(), audience: AUDIENCE.to_owned() }
}

fn good_claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": NOW - 5, "nbf": NOW - 5, "exp": NOW + 5,
        "scope": "process observer"})
}

fn signed(header: &str, claims: &str, key: &EncodingKey, algorithm: Algorithm) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).expect("the key is good");
    format!("{message}.{signature}")
}

/// The first byte says what the others are: a token; the header and the claims of one, each in a line, which
/// is then signed; or changes of a good one.
pub fn token(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let Setup { tokens, ed, ec, good } = &*SETUP;
    let token = match kind % 4 {
        0 => rest.to_vec(),
        kind @ (1 | 2) => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            let (header, claims) = text.split_once('\n').unwrap_or((r#"{"alg":"EdDSA","kid":"ed"}"#, text));
            let (key, algorithm) = if kind == 1 { (ed, Algorithm::EdDSA) } else { (ec, Algorithm::ES256) };
            signed(header, claims, key, algorithm).into_bytes()
        }
        _ => {
            let good = &good[usize::from(kind / 4 % 2)];
            let token = changed(good.as_bytes(), rest);
            if let Ok(verified) = tokens.verify(&token, NOW) {
                let signed = good.rfind('.').expect("it has three parts");
                assert_eq!(token[..signed], good.as_bytes()[..signed], "what was signed has changed");
                assert_eq!(verified.principal.as_str(), "ann");
            }
            token
        }
    };
    if let Ok(verified) = tokens.verify(&token, NOW) {
        check(&token, &verified);
        assert_eq!(tokens.known(&token, NOW), Some(verified.clone()), "it is remembered");
        assert_eq!(tokens.known(&token, verified.expires), None, "it has expired");
        tokens.check(&verified).expect("its key is still there");
    }
}

/// A token that was accepted says what it was accepted for.
fn check(token: &[u8], verified: &VerifiedToken) {
    let json = |part: &[u8]| -> Value {
        let json = URL_SAFE_NO_PAD.decode(part).expect("it was decoded before");
        serde_json::from_slice(&json).expect("it was read before")
    };
    let parts: Vec<&[u8]> = token.split(|byte| *byte == b'.').collect();
    let [header, claims, _] = parts[..] else { panic!("{} parts", parts.len()) };
    let (header, claims) = (json(header), json(claims));
    let algorithm = if verified.key_id == "ed" { "EdDSA" } else { "ES256" };
    assert_eq!((&header["alg"], &header["kid"]), (&json!(algorithm), &json!(verified.key_id)));
    for name in ["jku", "jwk", "x5u", "x5c", "crit"] {
        assert!(header[name].is_null(), "{header}");
    }
    let time = |name: &str| claims[name].as_u64().expect("it is a whole number");
    let (issued, begins, expires) = (time("iat"), time("nbf"), time("exp"));
    assert!(issued <= NOW && begins <= NOW && NOW < expires, "{claims}");
    assert!(expires - issued <= MAX_TOKEN_LIFETIME && verified.expires == expires, "{claims}");
    assert_eq!(claims["iss"], json!(ISSUER));
    let of_audience = |value: &Value| *value == json!(AUDIENCE);
    let audiences = claims["aud"].as_array().map_or(std::slice::from_ref(&claims["aud"]), Vec::as_slice);
    assert!(audiences.iter().any(of_audience), "{claims}");
    let principal = claims["sub"].as_str().expect("it is a text");
    assert!(is_principal_name(principal.as_bytes()) && principal != DENIED, "{claims}");
    assert_eq!(verified.principal.as_str(), principal);
    let scope = claims["scope"].as_str().map_or(Rights::ALL, Rights::of_scope);
    assert_eq!(verified.scope, scope);
}

/// Tokens of every kind, good and nearly good ones.
#[must_use]
pub fn token_seeds() -> Vec<Vec<u8>> {
    let claims = good_claims();
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        claims.to_string()
    };
    let mut seeds: Vec<Vec<u8>> = SETUP.good.iter().map(|good| [b"\0", good.as_bytes()].concat()).collect();
    let ed = "\x01{\"alg\":\"EdDSA\",\"kid\":\"ed\",\"typ\":\"JWT\"}\n";
    let ec = "\x02{\"alg\":\"ES256\",\"kid\":\"ec\"}\n";
    let described = [
        claims.to_string(),
        with("aud", json!(["them", AUDIENCE])),
        with("iss", json!([ISSUER])),
        with("sub", json!(DENIED)),
        with("exp", json!(NOW - 5 + MAX_TOKEN_LIFETIME)),
        with("exp", json!(1.5)),
        with("nbf", json!(NOW + 1)),
    ];
    seeds.extend(
        described
            .iter()
            .flat_map(|claims| [format!("{ed}{claims}"), format!("{ec}{claims}")])
            .map(String::into_bytes),
    );
    for header in [
        r#""jku":"https://example.org""#,
        r#""crit":["exp"]"#,
        r#""x5c":[]"#,
        r#""jwk":{"kty":"oct","k":"AA"}"#,
    ] {
        seeds.push(format!("\x01{{\"alg\":\"EdDSA\",\"kid\":\"ed\",{header}}}\n{claims}").into_bytes());
    }
    for algorithm in ["none", "HS256", "ES256"] {
        seeds.push(format!("\x01{{\"alg\":\"{algorithm}\",\"kid\":\"ed\"}}\n{claims}").into_bytes());
    }
    seeds.extend([vec![3], vec![7], vec![3, 0, 9, 1], vec![7, 1, 1, 1]]);
    seeds
}
