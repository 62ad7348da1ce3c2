//! A bearer token in a file, which somebody replaces before the token expires.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stickycas_proto::principal::is_principal_name;
use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;

/// How long a token is used before the file is read again.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(5);

/// See the module. The token itself is never shown.
pub(crate) struct TokenFile {
    path: PathBuf,
    latest: Mutex<Latest>,
}

struct Latest {
    /// `Bearer TOKEN`.
    authorization: MetadataValue<Ascii>,
    read: Instant,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TokenFile {
    /// Reads the token in this file.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Error> {
        let authorization = read(&path)?;
        Ok(Self { path, latest: Mutex::new(Latest { authorization, read: Instant::now() }) })
    }

    /// The principal that the token names. Whether it proves that is for a server to say.
    pub(crate) fn principal(&self) -> Result<String, Error> {
        let authorization = self.authorization();
        let payload = authorization.as_bytes().split(|byte| *byte == b'.').nth(1);
        let payload = payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
        let claims: Option<serde_json::Value> =
            payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        let name = claims.as_ref().and_then(|claims| claims.get("sub")?.as_str());
        let name = name.filter(|name| is_principal_name(name.as_bytes()));
        name.map(str::to_owned).ok_or_else(|| wrong(&self.path, "it is no JWT whose `sub` names a principal"))
    }

    /// What goes into the metadata key `authorization`. If the file cannot be read any more, the last token goes on.
    pub(crate) fn authorization(&self) -> MetadataValue<Ascii> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.read.elapsed() >= READ_EVERY {
            self.read_latest(&mut latest);
        }
        latest.authorization.clone()
    }

    /// Reads the file now.
    pub(crate) fn read_again(&self) {
        self.read_latest(&mut self.latest.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read_latest(&self, latest: &mut Latest) {
        latest.read = Instant::now();
        match read(&self.path) {
            Ok(authorization) => latest.authorization = authorization,
            Err(error) => tracing::warn!(%error, "the token is not read again"),
        }
    }
}

/// The text of a file.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let bytes = stickycas_certificates::read(path).map_err(|error| wrong(path, &error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| wrong(path, &error.to_string()))
}

/// Whether a token that is read while it is written has come to its end: all signatures that servers take have one length.
fn is_whole(token: &[u8]) -> bool {
    const SIGNATURE: usize = 64;
    let mut parts = token.rsplit(|byte| *byte == b'.');
    let signature = parts.next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    parts.count() == 2 && signature.is_some_and(|signature| signature.len() == SIGNATURE)
}

fn read(path: &Path) -> Result<MetadataValue<Ascii>, Error> {
    let text = text(path)?;
    let authorization =
        authorization(text.trim()).ok_or_else(|| wrong(path, "it is no token of one line"))?;
    let is_whole = is_whole(authorization.as_bytes());
    is_whole.then_some(authorization).ok_or_else(|| wrong(path, "it is no whole JWT"))
}

/// The value of the metadata key `authorization` with this token, if it can be one.
pub(crate) fn authorization(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut authorization: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
    // So that no log shows it.
    authorization.set_sensitive(true);
    Some(authorization)
}

pub(crate) fn wrong(path: &Path, why: &str) -> Error {
    Error::InvalidArgument(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(folder: &tempfile::TempDir, text: &str) -> Result<TokenFile, Error> {
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        TokenFile::open(path)
    }

    fn signature(first: u8) -> String {
        URL_SAFE_NO_PAD.encode([first; 64])
    }

    #[test]
    fn a_token_names_its_principal_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub":"ann"}"#);
        let secret = signature(1);
        let token = file(&folder, &format!("x.{payload}.{secret}\n")).unwrap();
        assert_eq!(token.principal().unwrap(), "ann");
        let authorization = token.authorization();
        assert_eq!(authorization.as_bytes(), format!("Bearer x.{payload}.{secret}").as_bytes());
        assert!(!format!("{token:?} {authorization:?}").contains(&secret));
    }

    #[test]
    fn half_a_token_does_not_take_the_place_of_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (format!("e30.e30.{}", signature(1)), format!("e30.e30.{}", signature(2)));
        let file = file(&folder, &old).unwrap();
        let shown = || file.authorization().to_str().unwrap().to_owned();
        for end in 0..new.len() {
            fs::write(folder.path().join("token"), &new[..end]).unwrap();
            file.read_again();
            assert_eq!(shown(), format!("Bearer {old}"), "to byte {end}");
        }
        fs::write(folder.path().join("token"), &new).unwrap();
        file.read_again();
        assert_eq!(shown(), format!("Bearer {new}"));
    }

    #[test]
    fn what_is_no_token_is_refused_by_the_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let whole = format!("x.e30.{}", signature(1));
        for half in ["", "a.b", "x.e30.y", &whole[..whole.len() - 1]] {
            let refused = file(&folder, half).unwrap_err().to_string();
            assert!(refused.contains("/token: it is no whole JWT"), "{refused}");
        }
        let refused = file(&folder, &whole).unwrap().principal().unwrap_err().to_string();
        assert!(refused.contains("/token: it is no JWT whose `sub` names a principal"), "{refused}");
        let refused = file(&folder, "a\nb").unwrap_err().to_string();
        assert!(refused.contains("/token: it is no token of one line"), "{refused}");
        assert!(TokenFile::open(folder.path().join("absent")).is_err());
    }
}
