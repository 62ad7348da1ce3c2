//! Bearer tokens of many principals in one file, for a program that plays all of them.
//!
//! A line of the file is the name of a principal, a blank and its token; `#` begins a comment. One file for all is what a
//! load of 65,536 principals can carry: it is read as a whole, and again when it has changed.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use stickycas_proto::principal::is_principal_name;
use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;
use crate::token_file::{READ_EVERY, authorization, text, wrong};

/// See the module. The tokens themselves are never shown.
pub(crate) struct TokenList {
    path: PathBuf,
    /// The principal of the first line.
    first: String,
    latest: Mutex<Latest>,
}

struct Latest {
    /// `Bearer TOKEN`, by principal.
    tokens: HashMap<Box<str>, MetadataValue<Ascii>>,
    version: Option<Version>,
    looked: Instant,
}

/// By what a changed file is known: when it was written, and its length.
type Version = (SystemTime, u64);

impl fmt::Debug for TokenList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenList").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TokenList {
    /// Reads the tokens in this file: one at least.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Error> {
        let version = version(&path);
        let lines = read(&path)?;
        let first = lines.first().map(|(name, _)| name.to_string());
        let first = first.ok_or_else(|| wrong(&path, "there is no token in it"))?;
        let latest = Latest { tokens: lines.into_iter().collect(), version, looked: Instant::now() };
        Ok(Self { path, first, latest: Mutex::new(latest) })
    }

    /// The principal of the first line.
    pub(crate) fn first(&self) -> &str {
        &self.first
    }

    /// Whether there is a token of this principal.
    pub(crate) fn contains(&self, principal: &str) -> bool {
        self.lock().tokens.contains_key(principal)
    }

    /// What goes into the metadata key `authorization` for this principal. If the file cannot be read any more, or has lost
    /// the line of a principal, the last token goes on.
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
        let version = version(&self.path);
        if version.is_some() && version == latest.version {
            return;
        }
        match read(&self.path) {
            Ok(lines) => {
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

/// The lines of the file that have a token.
fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let text = text(path)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &tempfile::TempDir, text: &str) -> Result<TokenList, Error> {
        let path = folder.path().join("tokens");
        fs::write(&path, text).unwrap();
        TokenList::open(path)
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
}
