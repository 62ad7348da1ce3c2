//! Files and folders that appear whole or not at all: written beside their place, and then moved there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file, in the place of an older one.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // That what is left of it cannot be removed either is not the news.
        let _ = fs::remove_file(&temporary);
    })
}

/// Writes a folder, which `fill` fills; without `to`, as the first of `default`, `default-2`, ...
/// that does not exist.
pub fn write_folder(
    to: Option<&Path>,
    default: &Path,
    fill: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let temporary = beside(to.unwrap_or(default))?;
    let written = fill(&temporary).and_then(|()| match to {
        Some(to) => place(&temporary, to).map(|()| to.to_owned()),
        None => place_at_first_free(&temporary, default),
    });
    if written.is_err() {
        // What is left of it is of no use; that it cannot be removed either is not the news.
        let _ = fs::remove_dir_all(&temporary);
    }
    written
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
fn beside(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", parent.display()));
    fs::create_dir_all(parent).map_err(named)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = parent.join(format!(".{name}.{}.{:08x}", std::process::id(), rand::random::<u32>()));
    fs::create_dir(&temporary).map_err(named)?;
    Ok(temporary)
}

/// Moves the finished folder to its place, where nothing may be yet.
fn place(temporary: &Path, to: &Path) -> io::Result<()> {
    // A rename would take the place of an empty folder.
    if to.exists() {
        return Err(exists_already(to));
    }
    fs::rename(temporary, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            exists_already(to)
        }
        kind => io::Error::new(kind, format!("{}: {error}", to.display())),
    })
}

fn exists_already(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{} exists already: give another --out", path.display()),
    )
}

fn place_at_first_free(temporary: &Path, first: &Path) -> io::Result<PathBuf> {
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
