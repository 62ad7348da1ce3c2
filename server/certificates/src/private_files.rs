//! Files and folders into which only their owner may look.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Makes a folder and those above it, unless they exist.
///
/// # Errors
/// If it cannot be made.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Makes a file that does not exist yet.
///
/// # Errors
/// If it cannot be made, or exists.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().mode(0o600).write(true).create_new(true).open(path)
}

/// Puts these bytes into a file, in place of its content. A reader finds the old bytes or the new ones.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new_path = path.as_os_str().to_owned();
    new_path.push(".new");
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create_private_file(Path::new(&new_path))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new_path, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_written_takes_the_place_of_the_old_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/key");
        create_private_folder(path.parent().unwrap()).unwrap();
        for text in ["first", "second"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(create_private_file(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
