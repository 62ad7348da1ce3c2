//! The folder that holds the log of a server: `--data DIR`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use super::access::{FolderOwner, FolderPrivacy, Rights};
use super::engine::{DiskEngine, EngineError, Files};
use stickycas_certificates::private_files::{create_private_file, create_private_folder};

/// The file of the log's checkpoints.
const LOG: &str = "log.redb";
/// The file of its tail.
const TAIL: &str = "log.tail";
/// The end of the names of both while a log is being made.
const NEW: &str = ".new";
/// The same while it is being made of a backup: until the file of the checkpoints has its name, the folder
/// has no log, and gets none.
const RESTORED: &str = ".restore";
/// The file that is locked while a server uses the folder.
const LOCK: &str = "lock";

/// A folder that this process has to itself while this lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// Locked; the system unlocks it when the process ends, however it ends.
    _lock: File,
    /// Whether the folder, and the file that is locked, were made for this.
    made: [bool; 2],
}

/// The reason for which a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be made or opened.
    #[error(
        "{path}: {error}: give a folder that this program may write (--data DIR; a server can also serve with --in-memory)"
    )]
    Io { path: PathBuf, error: io::Error },
    /// It cannot be read.
    #[error(
        "{path} cannot be read ({error}): run this program as the owner of the folder, or as root; look at the disk if that \
         does not help"
    )]
    Unreadable { path: PathBuf, error: io::Error },
    /// A backup was to be restored in it.
    #[error(
        "{path} has no log, and {LOG}{RESTORED} in it is what an interrupted restore has left: run stickycas-server data restore \
         again, or remove that file to begin with an empty log"
    )]
    NotRestored { path: PathBuf },
    /// Others than its owner may look into it.
    #[error(
        "{path} has mode {mode:03o}, and what clients have written is in it: only its owner may look into it (chmod 700, or \
         StateDirectoryMode=0700 if systemd makes it); where that does not last, give a folder in it, which the server \
         makes (--data {path}/log)"
    )]
    NotPrivate { path: PathBuf, mode: u32 },
    /// It belongs to another user, who could read and change its contents.
    #[error(
        "{path} belongs to the user with id {owner}, and this program runs as the user with id {user}: run it as the owner, or give \
         a folder of its own (--data DIR, or chown {user}), in Kubernetes by fsGroup"
    )]
    NotOwned { path: PathBuf, owner: u32, user: u32 },
    /// Another process uses it.
    #[error("{path} is in use by another stickycas-server: stop that one first, or give another folder")]
    Locked { path: PathBuf },
    /// The log in it cannot be opened.
    #[error("{path}: {error}")]
    Log { path: PathBuf, error: EngineError },
}

impl DataDir {
    /// Takes this folder, which is made if it does not exist. Nobody else may look into it (see `access`).
    ///
    /// # Errors
    /// If it cannot be used, or another process uses it.
    pub(crate) fn open(path: &Path) -> Result<Self, DataDirError> {
        let exists = path.exists();
        create_private_folder(path).map_err(|error| DataDirError::Io { path: path.to_owned(), error })?;
        check_access(path)?;
        let lock = path.join(LOCK);
        let failed = |error| DataDirError::Io { path: lock.clone(), error };
        let (file, is_new) = open_lock(path, &lock).map_err(failed)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, &lock).map_err(failed)? => {
                Ok(Self { path: path.to_owned(), _lock: file, made: [!exists, is_new] })
            }
            Ok(()) | Err(TryLockError::WouldBlock) => Err(DataDirError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Takes this folder, to read the log that is in it, together with others that read it. The permission to
    /// read it is enough: nothing is written.
    ///
    /// # Errors
    /// If it cannot be read, or a server uses it.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, DataDirError> {
        let lock = path.join(LOCK);
        let (lock, opened) = match File::open(&lock) {
            // A server locks the log, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let log = path.join(LOG);
                let opened = File::open(&log);
                (log, opened)
            }
            opened => (lock, opened),
        };
        let unreadable = |error| DataDirError::Unreadable { path: lock.clone(), error };
        let file = opened.map_err(unreadable)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: file, made: [false; 2] }),
            Err(TryLockError::WouldBlock) => Err(DataDirError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unreadable(error)),
        }
    }

    /// Whether there is a log in this folder.
    ///
    /// # Errors
    /// If that cannot be seen.
    pub(crate) fn has_log(path: &Path) -> Result<bool, DataDirError> {
        exists(&path.join(LOG))
    }

    /// Whether the folder has a log, or may get a new one.
    ///
    /// # Errors
    /// If a restore was interrupted in it.
    pub(crate) fn check_restored(&self) -> Result<(), DataDirError> {
        if exists(&self.files(RESTORED).database)? && !Self::has_log(&self.path)? {
            return Err(DataDirError::NotRestored { path: self.path.clone() });
        }
        Ok(())
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the log, if their names end in this.
    fn files(&self, end: &str) -> Files<PathBuf> {
        let [database, tail] = [LOG, TAIL].map(|name| self.path.join(format!("{name}{end}")));
        Files { database, tail }
    }

    /// The file of the log for errors and reports.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Bytes of its files.
    pub(crate) fn log_bytes(&self) -> u64 {
        log_bytes(&self.path)
    }

    /// Bytes that are free on its disk for this user; `None` if the system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.path)
    }

    /// Opens the log in the folder, or makes a new one.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or has a newer format.
    pub(crate) fn engine(&self) -> Result<DiskEngine, DataDirError> {
        let path = self.log_path();
        match path.metadata() {
            Ok(_) => tracing::info!("opening {}, {} bytes with its tail", path.display(), self.log_bytes()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_restored()?;
                self.make_log()?;
            }
            Err(error) => return Err(DataDirError::Io { path, error }),
        }
        let engine = DiskEngine::open(&self.files(""));
        // The name of a new file is on the disk only when its folder is.
        self.sync()?;
        engine.map_err(|error| DataDirError::Log { path, error })
    }

    /// Opens the log in the folder, which has one, to read it.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or has a newer format.
    pub(crate) fn engine_to_read(&self) -> Result<DiskEngine, DataDirError> {
        let opened = DiskEngine::open_to_read(&self.files(""));
        opened.map_err(|error| DataDirError::Log { path: self.log_path(), error })
    }

    /// Makes a new log. It has its name when it is complete: a loss of power in between must not leave a file
    /// that is no log.
    fn make_log(&self) -> Result<(), DataDirError> {
        let made = self.create_log(NEW)?;
        self.finish_log(NEW, made)
    }

    /// A new log, in which a backup is restored. It is the log of the folder after [`Self::finish_restore`].
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn begin_restore(&self) -> Result<DiskEngine, DataDirError> {
        let restored = self.create_log(RESTORED)?;
        // Without its name on the disk the folder would be an empty one after a loss of power.
        self.sync()?;
        Ok(restored)
    }

    /// The restored log is complete.
    ///
    /// # Errors
    /// If it cannot be closed or get its name.
    pub(crate) fn finish_restore(&self, restored: DiskEngine) -> Result<(), DataDirError> {
        self.finish_log(RESTORED, restored)
    }

    /// A restore has failed: removes the files and folders that it has made, and leaves the others.
    ///
    /// # Errors
    /// If it cannot be taken away.
    pub(crate) fn abandon_restore(self) -> io::Result<()> {
        let [made_folder, made_lock] = self.made;
        remove_files(&self.files(RESTORED)).map_err(|(_, error)| error)?;
        if made_lock {
            fs::remove_file(self.path.join(LOCK))?;
        }
        if made_folder { fs::remove_dir(&self.path) } else { Ok(()) }
    }

    fn create_log(&self, end: &str) -> Result<DiskEngine, DataDirError> {
        let files = self.files(end);
        remove_files(&files).map_err(|(path, error)| DataDirError::Io { path, error })?;
        DiskEngine::create(&files).map_err(|error| DataDirError::Log { path: files.database, error })
    }

    fn finish_log(&self, end: &str, log: DiskEngine) -> Result<(), DataDirError> {
        let (files, finished) = (self.files(end), self.files(""));
        log.close().map_err(|error| DataDirError::Log { path: files.database.clone(), error })?;
        // Without the other file a tail is no log.
        let renamed = fs::rename(files.tail, finished.tail)
            .and_then(|()| self.sync_folder())
            .and_then(|()| fs::rename(files.database, finished.database));
        renamed.map_err(|error| DataDirError::Io { path: self.path.clone(), error })?;
        self.sync()
    }

    fn sync(&self) -> Result<(), DataDirError> {
        self.sync_folder().map_err(|error| DataDirError::Io { path: self.path.clone(), error })
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Bytes of the files of the log in this folder; those count as none that nobody can look at.
pub(crate) fn log_bytes(folder: &Path) -> u64 {
    let bytes = |name| folder.join(name).metadata().map_or(0, |file| file.len());
    [LOG, TAIL].map(bytes).iter().sum()
}

/// The error names the file that cannot be removed.
fn remove_files(files: &Files<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    [&files.database, &files.tail]
        .into_iter()
        .try_for_each(|path| remove_if_there(path).map_err(|error| (path.clone(), error)))
}

fn exists(path: &Path) -> Result<bool, DataDirError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(DataDirError::Unreadable { path: path.to_owned(), error }),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens the file that is locked; whether it is new. A new one belongs to the owner of the log: his server
/// must be able to open it too.
fn open_lock(folder: &Path, lock: &Path) -> io::Result<(File, bool)> {
    // Through a link nothing is made and nothing given away: root may be in a folder of another user.
    match create_private_file(lock) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(lock).map(|file| (file, false))
        }
        new => new.and_then(|file| give_to_owner(folder, &file).map(|()| (file, true))),
    }
}

/// Whether the file still has its name, which a restore that has failed takes away.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (file, named) = (file.metadata()?, fs::metadata(path));
    Ok(named.is_ok_and(|named| (file.dev(), file.ino()) == (named.dev(), named.ino())))
}

fn give_to_owner(folder: &Path, file: &File) -> io::Result<()> {
    let own = file.metadata()?.uid();
    let (log, folder) = (fs::metadata(folder.join(LOG)), fs::metadata(folder)?);
    // A volume may be root's, and the log in it the server's.
    match [log.unwrap_or_else(|_| folder.clone()), folder].into_iter().find(|found| found.uid() != own) {
        Some(owner) if is_root() => fchown(file, Some(owner.uid()), Some(owner.gid())),
        _ => Ok(()),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn check_access(path: &Path) -> Result<(), DataDirError> {
    use rustix::process::{Gid, getegid, geteuid, getgroups};
    let failed = |error| DataDirError::Io { path: path.to_owned(), error };
    let found = fs::metadata(path).map_err(failed)?;
    let groups = getgroups().map_err(|error| failed(error.into()))?;
    let groups = groups.into_iter().chain([getegid()]).map(Gid::as_raw).collect();
    let rights = Rights { user: geteuid().as_raw(), groups };
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    match (FolderOwner { owner, group: found.gid(), mode }).privacy(&rights) {
        FolderPrivacy::Private => {}
        FolderPrivacy::OpenToAll => tracing::warn!(
            "everybody may write to {}: see that only this server can reach it, as an emptyDir of its pod",
            path.display()
        ),
        FolderPrivacy::NotPrivate => return Err(DataDirError::NotPrivate { path: path.to_owned(), mode }),
        FolderPrivacy::NotOwned => {
            return Err(DataDirError::NotOwned { path: path.to_owned(), owner, user: rights.user });
        }
    }
    Ok(())
}

fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_has_one_user_at_a_time_and_is_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        let refused = DataDir::open(&path).unwrap_err();
        assert!(refused.to_string().contains("in use by another stickycas-server"), "{refused}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_look_into_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        for mode in [0o755, 0o750, 0o701] {
            fs::set_permissions(parent.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = DataDir::open(parent.path()).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("mode {mode:o}")) && refused.contains("chmod 700"),
                "{refused}"
            );
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "nothing was left in it");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o700)).unwrap();
        DataDir::open(parent.path()).unwrap();
    }

    /// The root folder is root's, and a folder for tests is the user's own.
    #[test]
    fn a_folder_of_another_user_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let (path, owner) = if user == 0 {
            std::os::unix::fs::chown(parent.path(), Some(12_345), None).unwrap();
            (parent.path(), 12_345)
        } else {
            (Path::new("/"), 0)
        };
        let refused = DataDir::open(path).unwrap_err().to_string();
        let expected = format!(
            "belongs to the user with id {owner}, and this program runs as the user with id {user}: "
        );
        assert!(refused.contains(&expected) && refused.contains(&format!("chown {user}")), "{refused}");
        if user == 0 {
            assert_eq!(fs::read_dir(path).unwrap().count(), 0, "nothing was left in it");
        }
    }

    #[test]
    fn the_free_bytes_of_a_disk_are_known() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&parent.path().join("data")).unwrap();
        assert!(dir.free_bytes().is_some_and(|free| free > 0));
    }

    #[test]
    fn a_folder_that_is_read_gets_no_lock() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = DataDir::open(&path).unwrap();
        let engine = dir.engine().unwrap();
        fs::remove_file(path.join(LOCK)).unwrap();
        let refused = DataDir::open_to_read(&path).unwrap_err().to_string();
        assert!(refused.contains("in use by another stickycas-server"), "{refused}");
        drop((engine, dir));
        let readers = [(); 2].map(|()| DataDir::open_to_read(&path).unwrap());
        assert!(!path.join(LOCK).exists());
        let dir = DataDir::open(&path).unwrap();
        assert!(dir.engine().is_err(), "it is being read");
        drop(readers);
        dir.engine().unwrap();
    }

    #[test]
    fn a_log_that_was_half_made_is_made_again() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = DataDir::open(&path).unwrap();
        // As a loss of power leaves it: with its length, and nothing in it.
        let Files { database, tail } = dir.files(NEW);
        fs::write(&database, [0; 73_728]).unwrap();
        fs::write(&tail, [0; 10]).unwrap();
        drop(dir.engine().unwrap());
        assert!(path.join(LOG).is_file() && !database.exists() && !tail.exists());
        drop(dir.engine().unwrap());
    }

    #[test]
    fn a_file_that_is_no_log_is_said_to_be_none() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = DataDir::open(&path).unwrap();
        for bytes in [&[][..], &[7; 100_000]] {
            fs::write(dir.log_path(), bytes).unwrap();
            let refused = dir.engine().unwrap_err().to_string();
            assert!(refused.contains("log.redb: it is no log ("), "{refused}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = DataDir::open(&file.join("data")).unwrap_err().to_string();
        assert!(refused.contains("file/data") && refused.contains("--in-memory"), "{refused}");
    }
}
