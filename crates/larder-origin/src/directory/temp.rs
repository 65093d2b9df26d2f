//! Temporary files in a bucket's private folder, until they are renamed to what they are for.
//!
//! Invariant: a temporary file is gone when its guard is, whether the write failed, was refused or
//! was cancelled. As long as the guard lives, in whichever process, the file is locked, and not
//! swept.

use super::blocking;
use super::checksum::{Algorithm, Checksum, Hasher};
use super::key::PRIVATE;
use super::open::{Opened, absent};
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use larder_model::ByteRange;
use md5::{Digest as _, Md5};
use rand::Rng as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they are written: one hop to another thread for each.
const WRITE_BYTES: usize = 1024 * 1024;

/// An open temporary file. Dropped, it removes the file.
#[derive(Debug)]
pub(super) struct Temp {
    pub(super) file: File,
    path: PathBuf,
    kept: bool,
}

impl Temp {
    /// Makes an empty file. Fails with `NotFound` when the bucket's folder has gone. Blocking.
    pub(super) fn create(bucket: &Path) -> io::Result<Self> {
        let path = private_folder(bucket, &[FOLDER])?.join(random_name());
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let temp = Self { file, path, kept: false };
        lock(&temp.file)?;
        Ok(temp)
    }

    /// As [`seal`]. Blocking.
    pub(super) fn seal(&self) -> io::Result<()> {
        seal(&self.file)
    }

    /// Gives it its final name, durably. Blocking.
    pub(super) fn rename(self, to: &Path) -> io::Result<()> {
        self.show(to)?;
        sync_folder_of(to)
    }

    /// Gives it its final name. It is durable once [`sync_folder_of`] has come back. Blocking.
    pub(super) fn show(mut self, as_file: &Path) -> io::Result<()> {
        fs::rename(&self.path, as_file)?;
        self.kept = true;
        Ok(())
    }
}

/// Waits until the disk has what became of the file's name. A folder that has gone was emptied by
/// somebody else, later. Blocking.
pub(super) fn sync_folder_of(file: &Path) -> io::Result<()> {
    let folder = file.parent().map(File::open).map(absent).transpose()?;
    folder.flatten().map_or(Ok(()), |folder| folder.sync_all())
}

/// Makes the bytes durable, and the file's times its own.
///
/// File times tick every few milliseconds, and inodes are used again: of three files of one size
/// written within a tick, the first and the third could have one stamp, and so one tag. The clock
/// that is read here does not tick.
#[expect(
    clippy::disallowed_methods,
    reason = "file times are wall-clock times of this machine and compare with nothing else"
)]
fn seal(file: &File) -> io::Result<()> {
    file.set_modified(std::time::SystemTime::now())?;
    file.sync_all()
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: what remains is swept later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a body is while it is written, and after.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub(super) md5: [u8; 16],
    pub(super) checksum: Option<Checksum>,
}

struct Summing {
    md5: Md5,
    checksum: Option<Hasher>,
}

impl Summing {
    fn new(algorithm: Option<Algorithm>) -> Self {
        Self { md5: Md5::new(), checksum: algorithm.map(Hasher::new) }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
    }

    fn finish(self) -> Sums {
        Sums { md5: self.md5.finalize().into(), checksum: self.checksum.map(Hasher::finish) }
    }
}

/// A body that has been written to the disk.
pub(super) struct Received {
    pub(super) temp: Temp,
    pub(super) size: u64,
    pub(super) sums: Sums,
}

/// Why a body was not received.
pub(super) enum NotReceived {
    /// The sender failed.
    Body(io::Error),
    /// There are more bytes than were announced.
    TooLong,
    /// The disk did.
    Disk(io::Error),
}

/// Writes a body of at most `most` bytes to a temporary file and syncs it.
pub(super) async fn receive(
    bucket: &Path,
    mut body: BoxStream<'_, io::Result<Bytes>>,
    most: u64,
    algorithm: Option<Algorithm>,
) -> Result<Received, NotReceived> {
    let bucket = bucket.to_path_buf();
    let create = move || {
        let temp = Temp::create(&bucket)?;
        Ok((temp.file.try_clone()?, temp))
    };
    // The guard stays here: when this future is dropped, the file goes at once.
    let (mut file, temp) = blocking(create).await.map_err(NotReceived::Disk)?;
    let (mut summing, mut size, mut over) = (Summing::new(algorithm), 0, false);
    while !over {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while bytes < WRITE_BYTES {
            match body.next().await {
                Some(piece) => pieces.push(piece.map_err(NotReceived::Body)?),
                None => {
                    over = true;
                    break;
                }
            }
            bytes += pieces.last().map_or(0, Bytes::len);
        }
        size += bytes as u64;
        if size > most {
            return Err(NotReceived::TooLong);
        }
        let write = move || {
            for piece in pieces {
                summing.update(&piece);
                file.write_all(&piece)?;
            }
            if over {
                seal(&file)?;
            }
            Ok((file, summing))
        };
        (file, summing) = blocking(write).await.map_err(NotReceived::Disk)?;
    }
    Ok(Received { temp, size, sums: summing.finish() })
}

/// Copies an open object to a temporary file and syncs it; `None` when it changed meanwhile. Where
/// the file system can share blocks between files, none are copied. Blocking.
pub(super) fn copy(bucket: &Path, from: &Opened) -> io::Result<Option<Temp>> {
    let mut temp = Temp::create(bucket)?;
    let mut source = &from.file;
    source.seek(SeekFrom::Start(0))?;
    let copied = io::copy(&mut source, &mut temp.file)?;
    temp.seal()?;
    Ok((copied == from.stamp.size && from.is_current()?).then_some(temp))
}

/// As [`copy`], for some of the bytes, and with their sums. No range is an empty object.
pub(super) fn copy_range(
    bucket: &Path,
    from: &Opened,
    range: Option<ByteRange>,
    algorithm: Option<Algorithm>,
) -> io::Result<Option<Received>> {
    let (start, size) = range.map_or((0, 0), |range| (range.start(), range.len()));
    let mut temp = Temp::create(bucket)?;
    let mut summing = Summing::new(algorithm);
    let mut source = &from.file;
    source.seek(SeekFrom::Start(start))?;
    let mut piece = Vec::with_capacity(WRITE_BYTES);
    let mut left = size;
    while left > 0 {
        piece.clear();
        source.take(left.min(WRITE_BYTES as u64)).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(None);
        }
        summing.update(&piece);
        temp.file.write_all(&piece)?;
        left -= piece.len() as u64;
    }
    temp.seal()?;
    Ok(from.is_current()?.then(|| Received { temp, size, sums: summing.finish() }))
}

/// A name that nobody else takes.
fn random_name() -> String {
    hex::encode(rand::rng().random::<[u8; 16]>())
}

/// Waits for the lock of an open file, which lasts until the file is closed. Where the file system
/// has no locks, there is one process at work in the folder, or nobody to help.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match file.lock() {
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => Ok(()),
    }
}

/// Where temporary files are, in the private folder.
pub(super) const FOLDER: &str = "tmp";

/// The folder `parts` in the bucket's private folder, made if need be; but never the bucket's own: a
/// write that was under way when its bucket was deleted must not bring it back.
pub(super) fn private_folder(bucket: &Path, parts: &[&str]) -> io::Result<PathBuf> {
    let mut folder = bucket.to_path_buf();
    for part in std::iter::once(&PRIVATE).chain(parts) {
        folder.push(part);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    Ok(folder)
}
