//! Bearer tokens in a file, which somebody replaces before they expire: one, or those of many principals for
//! a program that plays all of them.
//!
//! In a file of many a line is the name of a principal, a blank and its token; `#` begins a comment. One file
//! for all is what a load of 65,536 principals can carry: it is read as a whole, and again when it has
//! changed.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stickycas_proto::principal::is_principal_name;
use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;

/// How long tokens are used before the file is looked at again.
const READ_EVERY: Duration = Duration::from_secs(5);

/// See the module. The tokens themselves are never shown.
pub(crate) struct Tokens {
    path: PathBuf,
    /// Whether it has those of many.
    pub(crate) are_of_many: bool,
    /// The principal of the first one.
    first: String,
    latest: Mutex<Latest>,
}

struct Latest {
    /// `Bearer TOKEN`, by principal.
    tokens: HashMap<Box<str>, MetadataValue<Ascii>>,
    version: Option<Version>,
    looked: Instant,
}

/// By what a changed file of many is known: when it was written, and its length.
type Version = (SystemTime, u64);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the tokens in this file: one at least.
    pub(crate) fn open(path: PathBuf, are_of_many: bool) -> Result<Self, Error> {
        let version = if are_of_many { version(&path) } else { None };
        let lines = read(&path, are_of_many)?;
        let first = lines.first().map(|(name, _)| name.to_string());
        let first = first.ok_or_else(|| wrong(&path, "there is no token in it"))?;
        let latest = Latest { tokens: lines.into_iter().collect(), version, looked: Instant::now() };
        Ok(Self { path, are_of_many, first, latest: Mutex::new(latest) })
    }

    /// The principal of the first one. Whether the token proves that is for a server to say.
    pub(crate) fn first(&self) -> &str {
        &self.first
    }

    /// Whether there is a token of this principal.
    pub(crate) fn contains(&self, principal: &str) -> bool {
        self.lock().tokens.contains_key(principal)
    }

    /// The value of the metadata key `authorization` for this principal. If the file cannot be read any more,
    /// or has lost the line of a principal, the last token goes on.
    pub(crate) fn authorization(&self, principal: &str) -> Option<MetadataValue<Ascii>> {
        let mut latest = self.lock();
        if latest.looked.elapsed() >= READ_EVERY {
            self.read_latest(&mut latest);
        }
        latest.tokens.get(principal).cloned()
    }

    /// Reads the file now, if it has changed.
    pub(crate) fn read_again(&self) {
        self.read_latest(&mut self.lock());
    }

    fn read_latest(&self, latest: &mut Latest) {
        latest.looked = Instant::now();
        let version = if self.are_of_many { version(&self.path) } else { None };
        if version.is_some() && version == latest.version {
            return;
        }
        match read(&self.path, self.are_of_many) {
            Ok(lines) => {
                let other = lines.first().filter(|(name, _)| !self.are_of_many && **name != *self.first);
                if let Some((name, _)) = other {
                    let path = self.path.display();
                    tracing::warn!("{path} has a token of {name} now: that of {} goes on", self.first);
                }
                latest.tokens.extend(lines);
                latest.version = version;
            }
            Err(error) => tracing::warn!(%error, "the tokens are not read again"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(path: &Path) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// A principal, and `Bearer TOKEN`.
type Line = (Box<str>, MetadataValue<Ascii>);

/// The tokens in a file with their principals.
fn read(path: &Path, are_of_many: bool) -> Result<Vec<Line>, Error> {
    let bytes = stickycas_certificates::read(path).map_err(|error| wrong(path, &error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(path, &error.to_string()))?;
    if are_of_many { lines(path, &text) } else { Ok(vec![one(path, text.trim())?]) }
}

/// A token, and the principal that it names.
fn one(path: &Path, token: &str) -> Result<Line, Error> {
    let authorization = authorization(token).ok_or_else(|| wrong(path, "it is no token of one line"))?;
    if !is_whole(token.as_bytes()) {
        return Err(wrong(path, "it is no whole JWT"));
    }
    let payload = token.split('.').nth(1).and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    let claims: Option<serde_json::Value> = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
    let name = claims.as_ref().and_then(|claims| claims.get("sub")?.as_str());
    let name = name.filter(|name| is_principal_name(name.as_bytes()));
    let name = name.ok_or_else(|| wrong(path, "it is no JWT whose `sub` names a principal"))?;
    Ok((name.into(), authorization))
}

/// Whether a token that is read while it is written has come to its end: all signatures that servers take
/// have one length.
fn is_whole(token: &[u8]) -> bool {
    const SIGNATURE: usize = 64;
    let mut parts = token.rsplit(|byte| *byte == b'.');
    let signature = parts.next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    parts.count() == 2 && signature.is_some_and(|signature| signature.len() == SIGNATURE)
}

/// The lines of a file of many that have a token.
fn lines(path: &Path, text: &str) -> Result<Vec<Line>, Error> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(wrong(path, "its last line has no end, as in a file that is not whole"));
    }
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(line, number)| {
            let (name, token) = line.trim().split_once(' ').unwrap_or_default();
            let token = Some(token.trim()).filter(|token| !token.is_empty()).and_then(authorization);
            // The line itself may be a secret.
            let wrong = || wrong(path, &format!("line {number}: give the name of a principal and its token"));
            let token = token.filter(|_| is_principal_name(name.as_bytes())).ok_or_else(wrong)?;
            Ok((name.into(), token))
        })
        .collect()
}

/// The value of the metadata key `authorization` with this token, if it can be one.
fn authorization(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut authorization: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
    // So that no log shows it.
    authorization.set_sensitive(true);
    Some(authorization)
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::InvalidArgument(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &tempfile::TempDir, text: &str) -> Result<Tokens, Error> {
        let path = folder.path().join("tokens");
        fs::write(&path, text).unwrap();
        Tokens::open(path, true)
    }

    #[test]
    fn each_principal_has_the_token_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let list = file(&folder, "# of the load\nbob b.secret.b\n\nann  a.secret.a\n").unwrap();
        assert_eq!(list.first(), "bob");
        assert!(list.contains("ann") && !list.contains("eve"));
        let shown = |name| list.authorization(name).map(|token| token.to_str().unwrap().to_owned());
        assert_eq!(shown("ann").unwrap(), "Bearer a.secret.a");
        assert_eq!(shown("bob").unwrap(), "Bearer b.secret.b");
        assert_eq!(shown("eve"), None);
        assert!(!format!("{list:?} {:?}", list.authorization("ann")).contains("secret"));
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let list = file(&folder, "ann old\nbob old\n").unwrap();
        let write = |text| fs::write(folder.path().join("tokens"), text).unwrap();
        write("ann newer\neve newer\n");
        list.read_again();
        let shown = |name| list.authorization(name).map(|token| token.to_str().unwrap().to_owned());
        assert_eq!(shown("ann").unwrap(), "Bearer newer");
        assert_eq!(shown("bob").unwrap(), "Bearer old", "its last token goes on");
        assert!(list.contains("eve"));
        for bad in ["no token there\u{7f}\n", "ann ne", "ann newest"] {
            write(bad);
            list.read_again();
            assert_eq!(shown("ann").unwrap(), "Bearer newer", "{bad:?}");
        }
    }

    #[test]
    fn a_line_that_is_wrong_is_told_by_its_number_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["ann secret\nsecret", "ann secret\nbob ", "ann secret\n.. secret", "ann secret\nbob s\u{7f}"]
        {
            let refused = file(&folder, &format!("{text}\n")).unwrap_err().to_string();
            assert!(refused.contains("/tokens: line 2: give the name of a principal"), "{text:?}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(file(&folder, "# nobody\n").unwrap_err().to_string().contains("there is no token in it"));
    }

    fn token(folder: &tempfile::TempDir, text: &str) -> Result<Tokens, Error> {
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        Tokens::open(path, false)
    }

    fn signature(first: u8) -> String {
        URL_SAFE_NO_PAD.encode([first; 64])
    }

    #[test]
    fn a_token_names_its_principal_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub":"ann"}"#);
        let secret = signature(1);
        let token = token(&folder, &format!("x.{payload}.{secret}\n")).unwrap();
        assert_eq!(token.first(), "ann");
        let authorization = token.authorization("ann").unwrap();
        assert_eq!(authorization.as_bytes(), format!("Bearer x.{payload}.{secret}").as_bytes());
        assert!(!format!("{token:?} {authorization:?}").contains(&secret));
    }

    #[test]
    fn half_a_token_does_not_take_the_place_of_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub":"ann"}"#);
        let [old, new] = [1, 2].map(|number| format!("e30.{payload}.{}", signature(number)));
        let file = token(&folder, &old).unwrap();
        let shown = || file.authorization("ann").unwrap().to_str().unwrap().to_owned();
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
            let refused = token(&folder, half).unwrap_err().to_string();
            assert!(refused.contains("/token: it is no whole JWT"), "{refused}");
        }
        let refused = token(&folder, &whole).unwrap_err().to_string();
        assert!(refused.contains("/token: it is no JWT whose `sub` names a principal"), "{refused}");
        let refused = token(&folder, "a\nb").unwrap_err().to_string();
        assert!(refused.contains("/token: it is no token of one line"), "{refused}");
        assert!(Tokens::open(folder.path().join("absent"), false).is_err());
    }
}
