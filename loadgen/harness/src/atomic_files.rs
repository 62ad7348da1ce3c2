//! Files and folders that appear whole or not at all: written beside their place, and then moved there.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempDir};

/// Writes a file, in the place of an older one; its folder is made if there is none.
///
/// # Errors
/// It cannot be written.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = made_parent(path)?;
    let prefix = prefix(path);
    let mut builder = Builder::new();
    builder.prefix(&prefix);
    // As files are that anybody may read; the process's mask takes from it what it takes from any file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(parent)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Writes a folder, which `fill` fills; without `to`, as the first of `default`, `default-2`, ... that does
/// not exist.
///
/// # Errors
/// `to` exists already, or it cannot be written.
pub fn write_folder(
    to: Option<&Path>,
    default: &Path,
    fill: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    // Removed with all that is in it, unless it comes to its place.
    let temporary = beside(to.unwrap_or(default))?;
    fill(temporary.path())?;
    match to {
        Some(to) => place(&temporary, to).map(|()| to.to_owned()),
        None => place_at_first_free(&temporary, default),
    }
}

/// Whether something is at this place that a run folder must not replace: anything but an empty folder.
#[must_use]
pub fn is_taken(place: &Path) -> bool {
    match fs::read_dir(place) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => place.symlink_metadata().is_ok(),
    }
}

/// A new folder beside this path, on the same file system.
fn beside(path: &Path) -> io::Result<TempDir> {
    let parent = made_parent(path)?;
    let prefix = prefix(path);
    let mut builder = Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder.tempdir_in(parent).map_err(|error| named(parent, &error))
}

/// The folder of this path, which is there afterwards.
fn made_parent(path: &Path) -> io::Result<&Path> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| named(parent, &error))?;
    Ok(parent)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// How the names of temporary files begin that take the place of this one: hidden, and after its name.
fn prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// Moves the finished folder to its place, where nothing may be yet.
fn place(temporary: &TempDir, to: &Path) -> io::Result<()> {
    // A rename would take the place of an empty folder.
    if to.exists() {
        return Err(exists_already(to));
    }
    fs::rename(temporary.path(), to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            exists_already(to)
        }
        _ => named(to, &error),
    })
}

fn exists_already(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{} exists already: give another --out", path.display()),
    )
}

fn place_at_first_free(temporary: &TempDir, first: &Path) -> io::Result<PathBuf> {
    let mut place_here = first.to_owned();
    for number in 2_u32.. {
        match place(temporary, &place_here) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place_here = PathBuf::from(format!("{}-{number}", first.display()));
            }
            placed => return placed.map(|()| place_here),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}: too many runs", first.display())))
}
