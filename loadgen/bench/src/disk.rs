//! The disk under the logs and the data that are measured.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use tempfile::TempDir;

/// An empty folder in this directory, deleted when it is dropped. A server takes it for its log: nobody else
/// may look into it.
pub(crate) fn folder(directory: &Path, what: &str) -> anyhow::Result<TempDir> {
    let prefix = format!("stickycas-bench-{what}-");
    let folder = tempfile::Builder::new()
        .prefix(&prefix)
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(directory);
    folder.with_context(|| directory.display().to_string())
}

/// The kind of file system that holds a directory, if the system tells: `ext4`, `tmpfs`.
pub(crate) fn file_system(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        Some((fields.next()?, fields.next()?))
    });
    // Of two mounts at the same place the later hides the earlier.
    mounts
        .filter(|(place, _)| directory.starts_with(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}

/// Bytes of the disk that the files of a folder take.
pub(crate) fn usage(folder: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;

    /// Of `st_blocks`, whatever the file system has.
    const BLOCK: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.blocks() * BLOCK;
    }
    Ok(bytes)
}
