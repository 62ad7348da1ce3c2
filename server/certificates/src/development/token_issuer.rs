//! An issuer of tokens, for development and tests.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _};
use serde_json::{Value, json};

use super::{DevelopmentError, write_file};
use crate::files::{MAX_TOKEN_LIFETIME, TOKEN_KEYS};
use crate::x509::seconds_since_1970;

/// A private key that signs tokens.
pub struct TokenIssuer {
    key: KeyPair,
    key_id: String,
    algorithm: Algorithm,
    signing: EncodingKey,
}

/// Tokens are valid a little before they are made: the clocks of machines differ.
const CLOCKS_DIFFER: u64 = 5 * 60;

impl TokenIssuer {
    /// An issuer with a new key of Ed25519.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(key_id: &str) -> Result<Self, DevelopmentError> {
        Self::of_key(KeyPair::generate_for(&PKCS_ED25519)?, key_id.to_owned())
    }

    /// The issuer with the private key in this file, in PEM.
    ///
    /// # Errors
    /// If there is none.
    pub fn read_private_key(path: &Path, key_id: &str) -> Result<Self, DevelopmentError> {
        let pem = fs::read_to_string(path);
        let pem = pem.map_err(|error| DevelopmentError::Io { path: path.to_owned(), error })?;
        Self::of_key(KeyPair::from_pem(&pem)?, key_id.to_owned())
    }

    /// The issuer with this key, of Ed25519 or P-256.
    ///
    /// # Errors
    /// If it signs no tokens.
    pub fn of_key(key: KeyPair, key_id: String) -> Result<Self, DevelopmentError> {
        let (algorithm, signing) = if key.algorithm() == &PKCS_ED25519 {
            (Algorithm::EdDSA, EncodingKey::from_ed_der(key.serialized_der()))
        } else {
            (Algorithm::ES256, EncodingKey::from_ec_der(key.serialized_der()))
        };
        Ok(Self { key, key_id, algorithm, signing })
    }

    /// The public key as a JSON Web Key.
    #[must_use]
    pub fn public_key(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (bytes, kid) = (self.key.der_bytes(), &self.key_id);
        match self.algorithm {
            Algorithm::EdDSA => {
                json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid, "x": encode(bytes)})
            }
            _ => {
                // 4, and the two coordinates of the point.
                let (x, y) = (encode(&bytes[1..33]), encode(&bytes[33..]));
                json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": kid, "x": x, "y": y})
            }
        }
    }

    /// Writes the key set that verifies the tokens into the folder of a server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_key_set(&self, folder: &Path) -> Result<(), DevelopmentError> {
        let set = json!({"keys": [self.public_key()]});
        write_file(&folder.join(TOKEN_KEYS), &format!("{set:#}\n"))
    }

    /// Writes the private key, in PEM.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_private_key(&self, path: &Path) -> Result<(), DevelopmentError> {
        write_file(path, &self.key.serialize_pem())
    }

    /// A token of this principal from now on, and a little before; as long as this, or as long as a server
    /// allows.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn token(
        &self,
        principal: &str,
        issuer: &str,
        audience: &str,
        lifetime: Duration,
    ) -> Result<String, DevelopmentError> {
        let now = seconds_since_1970();
        let begin = now.saturating_sub(CLOCKS_DIFFER);
        let end = now.saturating_add(lifetime.as_secs()).min(begin + MAX_TOKEN_LIFETIME);
        let claims = json!({
            "iss": issuer, "aud": audience, "sub": principal, "iat": begin, "nbf": begin, "exp": end,
        });
        self.sign(&claims)
    }

    /// A token with these claims, whatever they say.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn sign(&self, claims: &Value) -> Result<String, DevelopmentError> {
        self.sign_with(&Header { kid: Some(self.key_id.clone()), ..Header::new(self.algorithm) }, claims)
    }

    /// A token with this header and these claims, whatever they say.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn sign_with(&self, header: &Header, claims: &Value) -> Result<String, DevelopmentError> {
        Ok(jsonwebtoken::encode(header, claims, &self.signing)?)
    }
}
