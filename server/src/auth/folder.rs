//! The folder of files by which a server proves who it is and knows who others are.
//!
//! The files are read together: twice, until two readings agree, so that what is read while somebody replaces
//! files is no mixture of old and new ones. Names of files are those that cert-manager and Kubernetes use,
//! where these have one.
//!
//! A file is whole if another one was renamed to its name. One that is written in place may be read at any
//! moment, so what it would lose by that counts only when it has been left alone for a while: [`FileReader`].
//! What `denied` loses waits in any case, since one that is made again may be half written too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
pub(super) use stickycas_certificates::{CERTIFICATE, CLIENT_CAS, KEY, REVOCATION_LISTS, TOKEN_KEYS};
use tokio::time::Instant;

/// Principals that are refused whatever they show, one in a line; `#` begins a comment. Need not exist.
pub(crate) const DENIED: &str = "denied";
/// The roles of principals, beside those of the settings. Need not exist.
pub(crate) const ROLES: &str = "roles.toml";

pub(super) const ALL: [&str; 7] = [CERTIFICATE, KEY, CLIENT_CAS, REVOCATION_LISTS, DENIED, ROLES, TOKEN_KEYS];

/// The reason for which credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A certificate is not valid yet.
    #[error("{}: {what}", path.display())]
    NotYet {
        /// The file.
        path: PathBuf,
        /// From when on it is.
        what: String,
    },
    /// A file does not hold what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
}

impl CredentialsError {
    /// Whether the same files will do no better at the next try.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Io { error, .. } => error.kind() != io::ErrorKind::TimedOut,
            // The clock of a machine may be behind when it starts.
            Self::NotYet { .. } => false,
            Self::Content { .. } => true,
        }
    }
}

/// The contents of the files of a folder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    folder: PathBuf,
    contents: BTreeMap<&'static str, Vec<u8>>,
}

/// The identities of the files that had these contents: a file that was renamed over another one has another
/// identity.
type Identities = BTreeMap<&'static str, (u64, u64, Option<SystemTime>)>;

/// The result of a reading.
type Identified = Result<(Files, Identities), CredentialsError>;

/// Reads the files of one folder again and again.
#[derive(Debug)]
pub(super) struct FileReader {
    folder: PathBuf,
    /// The reading that was not over in time: it is waited for before there is another.
    unfinished: Mutex<Option<Receiver<Identified>>>,
    in_force: Mutex<InForce>,
}

#[derive(Debug, Default)]
struct InForce {
    identities: Identities,
    /// The contents of files of which one may be half written, and the moment since which they are the same.
    unsettled: Option<(Files, Instant)>,
}

/// The time that a reading may take: a file system that hangs never answers.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// The time for which a file that may be half written must have been left alone.
const LEFT_ALONE: Duration = Duration::from_secs(10);

impl FileReader {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), unfinished: Mutex::default(), in_force: Mutex::default() }
    }

    /// Reads the files. `old`: those in force; the new ones take their place, unless they are the same.
    ///
    /// # Errors
    /// If one cannot be read that exists, or not in time, or may not be whole yet.
    pub(super) fn read(&self, old: Option<&Files>) -> Result<Files, CredentialsError> {
        let folder = self.folder.clone();
        let (files, identities) = self.within(READ_LIMIT, move || Files::read_identified(&folder))?;
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old
            && let Some(name) = in_force.loses_in_place(old, &files, &identities)
        {
            let since = match in_force.unsettled.take() {
                Some((before, since)) if before == files => since,
                _ => Instant::now(),
            };
            if since.elapsed() < LEFT_ALONE {
                let remedy = if name == DENIED { "" } else { "rename a whole file over it (mv), or " };
                let what = format!(
                    "it has lost what it held and may be half written: {remedy}leave it alone for {LEFT_ALONE:?}"
                );
                let error = files.wrong(name, &what);
                in_force.unsettled = Some((files, since));
                return Err(error);
            }
        }
        *in_force = InForce { identities, unsettled: None };
        Ok(files)
    }

    /// Runs this reading in a thread of its own. Returns its result, or an error after this time.
    fn within(&self, limit: Duration, read: impl FnOnce() -> Identified + Send + 'static) -> Identified {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = unfinished.take().unwrap_or_else(|| {
            let (result, reading) = sync_channel(1);
            // The receiver may be gone.
            thread::spawn(move || result.send(read()).unwrap_or_default());
            reading
        });
        reading.recv_timeout(limit).unwrap_or_else(|_| {
            *unfinished = Some(reading);
            let what = format!("its files were not read within {limit:?}: does its file system answer?");
            let error = io::Error::new(io::ErrorKind::TimedOut, what);
            Err(CredentialsError::Io { path: self.folder.clone(), error })
        })
    }
}

impl InForce {
    /// A file that is the same as that in force, and holds less, as a file does that is being written. Of
    /// [`DENIED`] any one that holds less, or is gone.
    fn loses_in_place(&self, old: &Files, new: &Files, identities: &Identities) -> Option<&'static str> {
        old.contents.iter().map(|(name, old)| (*name, old)).find_map(|(name, old)| {
            let lines = |bytes: &'_ [u8]| {
                bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<BTreeSet<_>>()
            };
            if name == DENIED {
                let new = new.optional(DENIED).unwrap_or_default();
                return (!lines(new).is_superset(&lines(old))).then_some(name);
            }
            let new = new.contents.get(name)?;
            let loses = match name {
                // Each line counts for itself.
                ROLES => !new.starts_with(old),
                // Half an item is none.
                _ => new.len() < old.len() && old.starts_with(new),
            };
            (loses && self.identities.get(name) == identities.get(name)).then_some(name)
        })
    }
}

fn identity(metadata: &Metadata) -> (u64, u64, Option<SystemTime>) {
    // A number is given again when its file is gone.
    (metadata.dev(), metadata.ino(), metadata.created().ok())
}

impl Files {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read that exists.
    fn read_identified(folder: &Path) -> Identified {
        /// Files that change all the time are as good as any others.
        const READINGS: usize = 5;
        let mut files = Self::read_once(folder)?;
        for _ in 1..READINGS {
            let again = Self::read_once(folder)?;
            if again == files {
                break;
            }
            files = again;
        }
        Ok(files)
    }

    fn read_once(folder: &Path) -> Identified {
        let (mut contents, mut identities) = (BTreeMap::new(), BTreeMap::new());
        for name in ALL {
            let path = folder.join(name);
            let read = stickycas_certificates::read(&path);
            match read.and_then(|bytes| Ok((bytes, identity(&fs::metadata(&path)?)))) {
                Ok((bytes, identity)) => {
                    contents.insert(name, bytes);
                    identities.insert(name, identity);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CredentialsError::Io { path, error }),
            }
        }
        Ok((Self { folder: folder.to_owned(), contents }, identities))
    }

    /// Files with these contents.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of(folder: PathBuf, contents: BTreeMap<&'static str, Vec<u8>>) -> Self {
        Self { folder, contents }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The bytes of a file that must exist.
    pub(super) fn get(&self, name: &str) -> Result<&[u8], CredentialsError> {
        let absent = || self.wrong(name, &"there is no such file");
        self.optional(name).ok_or_else(absent)
    }

    /// The bytes of a file that need not exist.
    pub(super) fn optional(&self, name: &str) -> Option<&[u8]> {
        self.contents.get(name).map(Vec::as_slice)
    }

    /// The text of a file that need not exist.
    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, CredentialsError> {
        let text = self.optional(name).map(std::str::from_utf8).transpose();
        text.map_err(|error| self.wrong(name, &error))
    }

    /// All items with this label in a file; there is at least one.
    pub(super) fn pem_items<T: PemObject>(
        &self,
        name: &str,
        label: &str,
    ) -> Result<Vec<T>, CredentialsError> {
        stickycas_certificates::items(self.get(name)?, label).map_err(|error| self.wrong(name, &error))
    }

    /// Whether a file holds the same in both.
    pub(super) fn same(&self, other: &Self, name: &str) -> bool {
        self.contents.get(name) == other.contents.get(name)
    }

    /// The error that a certificate is not valid, or `is_early`: not yet.
    pub(super) fn not_valid(&self, name: &str, what: String, is_early: bool) -> CredentialsError {
        let path = self.path(name);
        if is_early {
            CredentialsError::NotYet { path, what }
        } else {
            CredentialsError::Content { path, what }
        }
    }

    /// The error that a file does not hold what it should.
    pub(super) fn wrong(&self, name: &str, what: &impl fmt::Display) -> CredentialsError {
        CredentialsError::Content { path: self.path(name), what: what.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn reader() -> (tempfile::TempDir, FileReader) {
        let folder = tempfile::tempdir().unwrap();
        let reader = FileReader::new(folder.path());
        (folder, reader)
    }

    #[test]
    fn a_file_system_that_hangs_is_waited_for_once() {
        let (folder, reader) = reader();
        let (release, hangs) = channel::<()>();
        let files = || Ok((Files::of(folder.path().to_owned(), BTreeMap::new()), Identities::new()));
        let path = folder.path().to_owned();
        let slow = reader.within(Duration::ZERO, move || {
            hangs.recv().unwrap();
            Ok((Files::of(path, BTreeMap::from([(DENIED, b"ann\n".to_vec())])), Identities::new()))
        });
        let slow = slow.unwrap_err();
        assert!(slow.to_string().contains("does its file system answer?"), "{slow}");
        assert!(!slow.is_final(), "it may answer at the next start");
        // No second thread hangs there.
        let again = reader.within(Duration::ZERO, || panic!("the first one is not over"));
        assert!(again.unwrap_err().to_string().contains("does its file system answer?"));
        release.send(()).unwrap();
        let (late, _) = reader.within(Duration::MAX, || panic!("the first one is not over")).unwrap();
        assert_eq!(late.optional(DENIED), Some(&b"ann\n"[..]));
        let (next, _) = reader
            .within(Duration::MAX, {
                let files = files();
                move || files
            })
            .unwrap();
        assert_eq!(next.optional(DENIED), None);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_by_its_name() {
        for name in ALL {
            let (folder, reader) = reader();
            let made = std::process::Command::new("mkfifo").arg(folder.path().join(name)).status().unwrap();
            assert!(made.success());
            let refused = reader.read(None).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("it is no regular file"), "{refused}");
        }
    }

    /// In a time that stands still but where it is moved.
    #[tokio::test(start_paused = true)]
    async fn what_is_written_in_place_loses_nothing_until_it_is_left_alone() {
        let (folder, reader) = reader();
        let (path, new) = (folder.path().join(DENIED), folder.path().join("new"));
        let write = |text: &str| fs::write(&path, text).unwrap();
        write("# lost\nann\nbob\n");
        let mut old = reader.read(None).unwrap();
        let refuse = |old: &Files| {
            let refused = reader.read(Some(old)).unwrap_err().to_string();
            assert!(refused.contains("denied: it has lost what it held"), "{refused}");
        };
        // Every half of the same, and what others write line by line.
        for half in ["", "#", "# lost\n", "# lost\nann\n", "eve\n", "eve\nann\n", "zoe\nann\n"] {
            write(half);
            refuse(&old);
            tokio::time::advance(LEFT_ALONE / 2).await;
            refuse(&old);
        }
        // More is never less.
        write("# lost\nann\nbob\neve\n");
        old = reader.read(Some(&old)).unwrap();
        assert!(old.optional(DENIED).unwrap().ends_with(b"eve\n"));
        // A whole file that holds more, in any order, takes its place at once.
        fs::write(&new, "zoe\nbob\nann\neve\n# lost\n").unwrap();
        fs::rename(&new, &path).unwrap();
        old = reader.read(Some(&old)).unwrap();
        // One that is gone, and one that is made again line by line.
        fs::remove_file(&path).unwrap();
        refuse(&old);
        tokio::time::advance(LEFT_ALONE / 2).await;
        for half in ["eve\n", "eve\nann\n"] {
            write(half);
            refuse(&old);
            tokio::time::advance(LEFT_ALONE / 2).await;
            refuse(&old);
        }
        tokio::time::advance(LEFT_ALONE / 2).await;
        old = reader.read(Some(&old)).unwrap();
        assert_eq!(old.optional(DENIED), Some(&b"eve\nann\n"[..]));
        fs::remove_file(&path).unwrap();
        refuse(&old);
        tokio::time::advance(LEFT_ALONE).await;
        assert_eq!(reader.read(Some(&old)).unwrap().optional(DENIED), None);
    }

    #[test]
    fn half_of_a_file_that_stands_already_is_no_other_file() {
        let (folder, reader) = reader();
        for name in ALL {
            fs::write(folder.path().join(name), "one\ntwo\nthree\n").unwrap();
        }
        let old = reader.read(None).unwrap();
        for name in ALL {
            for half in ["", "on", "one\n", "one\ntwo\n"] {
                fs::write(folder.path().join(name), half).unwrap();
                let refused = reader.read(Some(&old)).unwrap_err().to_string();
                assert!(
                    refused.contains(name) && refused.contains("may be half written"),
                    "{half:?}: {refused}"
                );
            }
            fs::write(folder.path().join(name), "one\ntwo\nthree\n").unwrap();
            assert!(reader.read(Some(&old)).unwrap() == old, "{name}");
        }
    }
}
