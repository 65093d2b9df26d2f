//! Opens the file of a key, and nothing outside of its bucket.
//!
//! Invariant: an [`Opened`] is a regular file that lies in the bucket's folder by its real path, as
//! the kernel tells it for the open descriptor: a link that is swapped in meanwhile gains nothing.

use super::key::{self, PRIVATE, Stamp};
use super::sidecar::{self, StoredHeaders};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How often an open is tried over while the file is being replaced.
const TRIES: u32 = 5;

/// An object's file, open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// Where it was found; a link's own path, not its target's.
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
    /// What was stored with it.
    pub(super) stored: StoredHeaders,
}

/// The file of `key`; `None` when there is no such object.
pub(super) fn open(bucket: &Path, key: &str) -> io::Result<Option<Opened>> {
    let Ok(path) = key::path(bucket, key) else { return Ok(None) };
    for _ in 0..TRIES {
        let file = match open_file(bucket, &path)? {
            Found::File(file) => file,
            Found::Replaced => continue,
            Found::Nothing => return Ok(None),
        };
        let stamp = Stamp::of(&file.metadata()?);
        let stored = sidecar::load(bucket, key, &stamp)?;
        // The stored headers of a replaced file are gone; then the new one is meant.
        let opened = Opened { file, path: path.clone(), stamp, stored };
        if opened.is_current()? {
            return Ok(Some(opened));
        }
    }
    Err(io::Error::other("the file is replaced faster than it can be opened"))
}

impl Opened {
    /// Whether neither the open file nor what stands at its path has changed since it was opened.
    pub(super) fn is_current(&self) -> io::Result<bool> {
        if Stamp::of(&self.file.metadata()?) != self.stamp {
            return Ok(false);
        }
        Ok(absent(fs::metadata(&self.path))?.is_some_and(|now| Stamp::of(&now) == self.stamp))
    }
}

/// The state of the object at `path`, a path made by [`key::path`] or found by a walk; `None` when
/// it is no object. `path` must not lead through links but by its last part.
pub(super) fn visible(bucket: &Path, path: &Path) -> io::Result<Option<Metadata>> {
    let Some(found) = absent(fs::symlink_metadata(path))? else { return Ok(None) };
    if found.is_file() {
        return Ok(Some(found));
    }
    if !found.is_symlink() {
        return Ok(None);
    }
    let Some(target) = absent(fs::canonicalize(path))? else { return Ok(None) };
    if !holds(bucket, &target) {
        return Ok(None);
    }
    Ok(absent(fs::metadata(&target))?.filter(Metadata::is_file))
}

/// Whether every part of `folder` below `bucket` is a real folder and no link.
pub(super) fn is_plain_folder(bucket: &Path, folder: &Path) -> io::Result<bool> {
    let Ok(below) = folder.strip_prefix(bucket) else { return Ok(false) };
    let mut path = bucket.to_path_buf();
    for part in below {
        path.push(part);
        if !absent(fs::symlink_metadata(&path))?.is_some_and(|found| found.is_dir()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `None` in place of the errors that mean: there is nothing at this path.
pub(super) fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => Ok(None),
            // A link that leads to itself.
            _ if error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
            _ => Err(error),
        },
    }
}

enum Found {
    /// Inside the bucket, and what stands at the path, or stood there a moment ago.
    File(File),
    /// Replaced while it was being opened.
    Replaced,
    Nothing,
}

fn open_file(bucket: &Path, path: &Path) -> io::Result<Found> {
    // Looked at before it is opened: opening a device or a pipe can have effects of its own.
    if visible(bucket, path)?.is_none() {
        return Ok(Found::Nothing);
    }
    // Not blocking: a pipe that was put there meanwhile must not hang the thread.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let Some(file) = absent(file)? else { return Ok(Found::Replaced) };
    let real = real_path(&file, path)?;
    let folder = path.parent().unwrap_or(bucket);
    // A link may lead anywhere in the bucket; what is no link must be where the key says.
    let inside = match &real {
        None => false,
        Some(real) if real == path => true,
        Some(real) => holds(bucket, real) && is_link(path)?,
    };
    if !is_plain_folder(bucket, folder)? {
        return Ok(Found::Nothing);
    }
    if inside && file.metadata()?.is_file() {
        return Ok(Found::File(file));
    }
    Ok(Found::Replaced)
}

fn is_link(path: &Path) -> io::Result<bool> {
    Ok(absent(fs::symlink_metadata(path))?.is_some_and(|found| found.is_symlink()))
}

/// Where the open file really is. Where `/proc` does not tell, the path is resolved anew and must
/// lead to the same file.
fn real_path(file: &File, path: &Path) -> io::Result<Option<PathBuf>> {
    if let Ok(real) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        return Ok(Some(real));
    }
    let Some(real) = absent(fs::canonicalize(path))? else { return Ok(None) };
    let (open, found) = (file.metadata()?, absent(fs::metadata(&real))?);
    let same = found.is_some_and(|found| (found.dev(), found.ino()) == (open.dev(), open.ino()));
    Ok(same.then_some(real))
}

fn holds(bucket: &Path, real: &Path) -> bool {
    real.starts_with(bucket) && !real.starts_with(bucket.join(PRIVATE))
}
