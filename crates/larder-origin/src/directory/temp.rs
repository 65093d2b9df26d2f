//! Temporary files in a bucket's private folder, until they are renamed to what they are for.
//!
//! Invariant: a temporary file is gone when its guard is, whether the write failed, was refused or
//! was cancelled.

use super::blocking;
use super::key::PRIVATE;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use md5::{Digest as _, Md5};
use rand::Rng as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that are gathered before they are written: one hop to another thread for each.
const WRITE_BYTES: usize = 1024 * 1024;

/// A temporary file older than this belongs to no living request.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// An open temporary file. Dropped, it removes the file.
#[derive(Debug)]
pub(super) struct Temp {
    pub(super) file: File,
    path: PathBuf,
    kept: bool,
}

impl Temp {
    /// Makes an empty file. Blocking.
    pub(super) fn create(bucket: &Path) -> io::Result<Self> {
        let folder = folder(bucket);
        fs::create_dir_all(&folder)?;
        let path = folder.join(random_name());
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, kept: false })
    }

    /// Makes it durable under its final name. Blocking.
    pub(super) fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.kept = true;
        match to.parent() {
            // The rename itself is on the disk once the folder is.
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: what remains is swept a day later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A body that has been written to the disk.
pub(super) struct Received {
    pub(super) temp: Temp,
    pub(super) size: u64,
    pub(super) md5: [u8; 16],
}

/// Why a body was not received.
pub(super) enum NotReceived {
    /// The sender failed.
    Body(io::Error),
    /// The disk did.
    Disk(io::Error),
}

/// Writes a body to a temporary file and syncs it.
pub(super) async fn receive(
    bucket: &Path,
    mut body: BoxStream<'_, io::Result<Bytes>>,
) -> Result<Received, NotReceived> {
    let bucket = bucket.to_path_buf();
    let create = move || {
        let temp = Temp::create(&bucket)?;
        Ok((temp.file.try_clone()?, temp))
    };
    let (mut file, temp) = blocking(create).await.map_err(NotReceived::Disk)?;
    let (mut digest, mut size, mut over) = (Md5::new(), 0, false);
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
        let write = move || {
            for piece in pieces {
                digest.update(&piece);
                file.write_all(&piece)?;
            }
            if over {
                file.sync_all()?;
            }
            Ok((file, digest))
        };
        (file, digest) = blocking(write).await.map_err(NotReceived::Disk)?;
    }
    Ok(Received { temp, size, md5: digest.finalize().into() })
}

/// A name that nobody else takes.
pub(super) fn random_name() -> String {
    hex::encode(rand::rng().random::<[u8; 16]>())
}

/// Removes what a killed process left in this bucket. Best effort, blocking.
#[expect(
    clippy::disallowed_methods,
    reason = "file times are wall-clock times of this machine and compare with nothing else"
)]
pub(super) fn sweep(bucket: &Path) {
    let now = std::time::SystemTime::now();
    let Ok(entries) = fs::read_dir(folder(bucket)) else { return };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|found| found.modified());
        let stale = modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > STALE));
        if stale && fs::remove_file(entry.path()).is_ok() {
            tracing::info!(file = %entry.path().display(), "removed a stale temporary file");
        }
    }
}

fn folder(bucket: &Path) -> PathBuf {
    bucket.join(PRIVATE).join("tmp")
}
