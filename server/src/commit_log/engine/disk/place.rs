//! Where a file of a log is: nobody finds again what is written into a file that has been removed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::commit_log::engine::EngineError;

/// The place of the file of a log when it was opened.
pub(super) struct FilePlace {
    path: PathBuf,
    id: (u64, u64),
}

impl FilePlace {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: file_id(path)? })
    }

    /// # Errors
    /// If it is no more there.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        match file_id(&self.path) {
            Ok(id) if id == self.id => Ok(()),
            // It may still be there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            _ => {
                tracing::error!(
                    "{} was removed or replaced, or its folder or mount, while the server uses it",
                    self.path.display()
                );
                Err(EngineError::failed("its file was removed or replaced"))
            }
        }
    }

    /// A write or a sync of the file has failed: asks the system to read it from the disk again, since pages
    /// that it holds may not have been written.
    pub(super) fn drop_cached(&self) {
        let drop_all = |file| Ok(fadvise(file, 0, None, Advice::DontNeed)?);
        if let Err(error) = File::open(&self.path).and_then(drop_all) {
            tracing::warn!(%error, "what the system holds of {} cannot be dropped", self.path.display());
        }
    }
}

/// Of which file system a file is, and which one there.
fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.metadata()?;
    Ok((found.dev(), found.ino()))
}
