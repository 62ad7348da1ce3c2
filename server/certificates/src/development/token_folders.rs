//! The tokens that `credentials` makes: in a folder for each principal, or all of them in one file.
//!
//! A token lives for a day at most, which certificates outlive. So tokens alone are made anew when they
//! expire, with the key that a server verifies them with already, if that is still there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::token_issuer::TokenIssuer;
use super::{DevelopmentCas, DevelopmentError, Verifier, make_folder, write_token_file, write_token_list};
use crate::files::{MAX_TOKEN_LIFETIME, SERVER_CAS};
use crate::x509::seconds_since_1970;

/// The places of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// Beside the certificates, a folder for each principal (tokens/NAME).
    Folders,
    /// In one file (tokens/tokens), for a program that plays all of them; and no principal gets a
    /// certificate.
    File,
}

/// The claims of tokens that a server is told to demand.
#[derive(Clone, Debug)]
pub struct TokenClaims {
    /// The issuer.
    pub issuer: String,
    /// The audience.
    pub audience: String,
}

/// The tokens of all principals.
pub(super) struct TokenFolders<'a> {
    pub(super) form: TokenForm,
    /// The folder with all credentials.
    pub(super) out: &'a Path,
    pub(super) claims: &'a TokenClaims,
    /// The time for which they are valid, if a server allows that.
    pub(super) lifetime: Duration,
    pub(super) principals: &'a [String],
}

/// The id of the key.
const KEY_ID: &str = "development";

impl TokenFolders<'_> {
    /// Makes a key and all of them.
    pub(super) fn make(&self, cas: &DevelopmentCas, server: &Path) -> Result<(), DevelopmentError> {
        let issuer = self.new_issuer(server)?;
        match self.form {
            TokenForm::Folders => self
                .principals
                .iter()
                .try_for_each(|name| cas.write_token_client(&self.folder(name), &self.token(&issuer, name)?)),
            TokenForm::File => cas.write_token_list(&self.folder_of_all(), self.tokens(&issuer)),
        }
    }

    /// Makes those anew that are missing or expire soon. How many there were. `verifier`: a server that takes
    /// tokens, if the keys in its folder can be used.
    pub(super) fn renew(&self, verifier: Option<&impl Verifier>, server: &Path) -> anyhow::Result<usize> {
        let kept = verifier.and_then(|verifier| {
            let issuer = TokenIssuer::read_private_key(&self.signing_key(), KEY_ID).ok()?;
            // Whether it is the key that the server knows, a token shows.
            let token = self.token(&issuer, KEY_ID).ok()?;
            verifier.principal_of_token(token.as_bytes()).is_ok().then_some((issuer, verifier))
        });
        let Some((issuer, verifier)) = kept else {
            let issuer = self.new_issuer(server)?;
            return self.write(&issuer, |_| true);
        };
        match self.form {
            TokenForm::Folders => self.write(&issuer, |name| self.check_one(verifier, name).is_err()),
            TokenForm::File => self.write(&issuer, |_| true),
        }
    }

    /// Whether all of them are there and good for some time to come.
    pub(super) fn check(&self, verifier: &impl Verifier) -> anyhow::Result<()> {
        match self.form {
            TokenForm::Folders => self.principals.iter().try_for_each(|name| self.check_one(verifier, name)),
            TokenForm::File => self.check_list(verifier),
        }
    }

    /// Whether the CAs of the server are beside all of them: those alone cannot be made anew.
    pub(super) fn check_cas(&self) -> anyhow::Result<()> {
        let folders: Vec<PathBuf> = match self.form {
            TokenForm::Folders => self.principals.iter().map(|name| self.folder(name)).collect(),
            TokenForm::File => vec![self.folder_of_all()],
        };
        for folder in folders {
            let path = folder.join(SERVER_CAS);
            ensure!(path.exists(), "{} is missing", path.display());
        }
        Ok(())
    }

    /// The private key, which no server and no client needs.
    fn signing_key(&self) -> PathBuf {
        self.out.join("token-signing-key.pem")
    }

    /// Writes the tokens of these. How many there are.
    fn write(&self, issuer: &TokenIssuer, is_due: impl Fn(&str) -> bool) -> anyhow::Result<usize> {
        if self.form == TokenForm::File {
            write_token_list(&self.list(), self.tokens(issuer))?;
            return Ok(self.principals.len());
        }
        let mut written = 0;
        for name in self.principals.iter().filter(|name| is_due(name)) {
            write_token_file(&self.folder(name).join("token"), &self.token(issuer, name)?)?;
            written += 1;
        }
        Ok(written)
    }

    fn check_one(&self, verifier: &impl Verifier, principal: &str) -> anyhow::Result<()> {
        let path = self.folder(principal).join("token");
        let shown = || path.display().to_string();
        let token = fs::read_to_string(&path).with_context(shown)?;
        self.check_token(verifier, principal, token.trim()).with_context(shown)
    }

    fn check_list(&self, verifier: &impl Verifier) -> anyhow::Result<()> {
        let path = self.list();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut lines = text.lines();
        for principal in self.principals {
            let line = lines.next().and_then(|line| line.split_once(' '));
            let (_, token) = line
                .filter(|(name, _)| name == principal)
                .with_context(|| format!("{}: {principal} has no line at its place", path.display()))?;
            self.check_token(verifier, principal, token)
                .with_context(|| format!("{}: {principal}", path.display()))?;
        }
        Ok(())
    }

    /// Whether a server takes this token as that of this principal, and will do so for some time.
    fn check_token(&self, verifier: &impl Verifier, principal: &str, token: &str) -> anyhow::Result<()> {
        let (named, expires) = verifier.principal_of_token(token.as_bytes())?;
        ensure!(named == principal, "it names {named}");
        let left = expires.saturating_sub(seconds_since_1970());
        ensure!(left >= self.least_left(), "it expires in {left} s: make it anew with --keep");
        Ok(())
    }

    /// The seconds that a token that is kept must have left: a quarter of its life.
    fn least_left(&self) -> u64 {
        self.lifetime.as_secs().min(MAX_TOKEN_LIFETIME) / 4
    }

    /// A new key, written: the private one, and the server's key set.
    fn new_issuer(&self, server: &Path) -> Result<TokenIssuer, DevelopmentError> {
        let issuer = TokenIssuer::new(KEY_ID)?;
        make_folder(server)?;
        issuer.write_key_set(server)?;
        issuer.write_private_key(&self.signing_key())?;
        Ok(issuer)
    }

    fn token(&self, issuer: &TokenIssuer, principal: &str) -> Result<String, DevelopmentError> {
        issuer.token(principal, &self.claims.issuer, &self.claims.audience, self.lifetime)
    }

    fn tokens<'a>(
        &'a self,
        issuer: &'a TokenIssuer,
    ) -> impl Iterator<Item = Result<(&'a str, String), DevelopmentError>> {
        self.principals.iter().map(|name| Ok((name.as_str(), self.token(issuer, name)?)))
    }

    fn folder_of_all(&self) -> PathBuf {
        self.out.join("tokens")
    }

    fn folder(&self, principal: &str) -> PathBuf {
        self.folder_of_all().join(principal)
    }

    fn list(&self) -> PathBuf {
        self.folder_of_all().join("tokens")
    }
}
