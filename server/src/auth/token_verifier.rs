//! Verifies tokens as a server with this folder of credentials does, for those who make tokens.

use std::sync::Arc;

use super::folder::{CredentialsError, Files, TOKEN_KEYS};
use super::store::seconds_since_1970;
use super::token_keys::TokenKeys;
use super::tokens::{TokenError, Tokens};
use crate::config::{CredentialFolder, TokenConfig};

/// See the module.
pub(crate) struct TokenVerifier(Tokens);

impl TokenVerifier {
    /// With the keys in this folder, for tokens with these claims.
    ///
    /// # Errors
    /// If there are no keys in it that can be used.
    pub(crate) fn read(folder: &CredentialFolder, claims: &TokenConfig) -> Result<Self, CredentialsError> {
        let files = Files::read(&folder.path)?;
        let keys = TokenKeys::parse(files.get(TOKEN_KEYS)?, claims);
        let (keys, _) = keys.map_err(|error| files.wrong(TOKEN_KEYS, &error))?;
        // Each is verified once.
        Ok(Self(Tokens::new(keys, Arc::default(), 0)))
    }

    /// The principal of this token, and the moment at which it expires, in seconds since 1970.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<(String, u64), TokenError> {
        let verified = self.0.verify(token, seconds_since_1970())?;
        Ok((verified.principal.as_str().to_owned(), verified.expires))
    }
}
