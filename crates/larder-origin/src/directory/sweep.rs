//! Removes what killed processes and forgotten uploads left in the private folders.
//!
//! Invariant: what somebody has in hand is locked, by whichever process, and stays; what is younger
//! than [`STALE`] stays too.

use super::open::{absent, is_plain_folder};
use super::temp::FOLDER;
use super::upload::{self, RECORD};
use super::{Inner, blocking, key::PRIVATE};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Nobody goes on with an upload after this. Seven days is what the S3 User Guide's example of
/// `AbortIncompleteMultipartUpload` has, so clients that resume count on no more.
const STALE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often it is looked for.
const EVERY: Duration = Duration::from_secs(24 * 3600);

/// The daily sweep, which ends with its origin.
#[derive(Debug)]
pub(super) struct Sweeper(AbortHandle);

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sweeper {
    /// Sweeps every day from now on, not now; `None` outside a runtime.
    pub(super) fn start(origin: Weak<Inner>) -> Option<Self> {
        let daily = async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let Some(root) = origin.upgrade().map(|inner| inner.root.clone()) else { return };
                if let Err(error) = blocking(move || sweep(&root)).await {
                    tracing::warn!(%error, "cannot look for stale uploads");
                }
            }
        };
        Some(Self(Handle::try_current().ok()?.spawn(daily).abort_handle()))
    }
}

/// Sweeps all buckets. Fails when the root cannot be read. Blocking.
pub(super) fn sweep(root: &Path) -> io::Result<()> {
    for bucket in fs::read_dir(root)? {
        let private = bucket?.path().join(PRIVATE);
        let (files, uploads) = (private.join(FOLDER), private.join(upload::FOLDER));
        // Not through links: what they lead to may be anybody's.
        if is_plain_folder(root, &files)? {
            for file in stale(&files, modified) {
                remove(&file, &file, |file| fs::remove_file(file));
            }
        }
        if is_plain_folder(root, &uploads)? {
            for upload in stale(&uploads, last_used) {
                remove(&upload, &upload.join(RECORD), upload::forget);
            }
        }
    }
    Ok(())
}

/// What in the folder was last used, as `used` tells, more than [`STALE`] ago.
#[expect(
    clippy::disallowed_methods,
    reason = "file times are wall-clock times of this machine and compare with nothing else"
)]
fn stale(folder: &Path, used: fn(&Path) -> io::Result<SystemTime>) -> Vec<PathBuf> {
    let now = SystemTime::now();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_stale = |path: &PathBuf| {
        used(path).is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > STALE))
    };
    entries.filter(is_stale).collect()
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::symlink_metadata(path)?.modified()
}

/// A part that comes changes the folder.
fn last_used(upload: &Path) -> io::Result<SystemTime> {
    let begun = absent(fs::symlink_metadata(upload.join(RECORD)))?;
    let begun = begun.map(|record| record.modified()).transpose()?;
    Ok(modified(upload)?.max(begun.unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// Removes `path`, unless the file that stands for it is locked. Best effort.
fn remove(path: &Path, locked: &Path, remove: fn(&Path) -> io::Result<()>) {
    // A folder without the file is what a removal that was cut short left.
    let file = File::open(locked).ok();
    if let Some(file) = &file
        && matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    {
        return;
    }
    match remove(path) {
        Ok(()) => tracing::info!(path = %path.display(), "removed what an upload left"),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot remove a stale upload");
        }
    }
}
