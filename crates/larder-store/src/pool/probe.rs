//! Whether a pool's folder can be written to and read back.

use super::health::Probe;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A probe that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Probes one folder, with one thread at most, however long a probe hangs.
#[derive(Debug)]
pub(super) struct Prober {
    folder: PathBuf,
    /// What a region takes on the file system.
    region: u64,
    under_way: Option<oneshot::Receiver<Probe>>,
}

impl Prober {
    pub(super) fn new(folder: &Path, region: u64) -> Self {
        Self { folder: folder.to_owned(), region, under_way: None }
    }

    /// Writes a page, reads it back, and looks for room for another region.
    pub(super) async fn probe(&mut self) -> Probe {
        self.run(probe).await
    }

    /// Looks only whether the folder is there.
    pub(super) async fn look(&mut self) -> Probe {
        self.run(|folder, _| there(folder)).await
    }

    async fn run(&mut self, how: fn(&Path, u64) -> Probe) -> Probe {
        let mut answer = match self.under_way.take() {
            Some(answer) => answer,
            None => match self.start(how) {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::error!(%error, "cannot start a thread to probe the SSD");
                    return Probe::Failed;
                }
            },
        };
        match timeout(PATIENCE, &mut answer).await {
            Ok(found) => found.unwrap_or(Probe::Failed),
            Err(_) => {
                self.under_way = Some(answer);
                Probe::Hung
            }
        }
    }

    fn start(&self, how: fn(&Path, u64) -> Probe) -> io::Result<oneshot::Receiver<Probe>> {
        let (tell, told) = oneshot::channel();
        let (folder, region) = (self.folder.clone(), self.region);
        // No thread of a runtime: the end of the process would wait for it.
        let thread = std::thread::Builder::new().name("larder-probe".to_owned());
        thread.spawn(move || {
            let _ = tell.send(how(&folder, region));
        })?;
        Ok(told)
    }
}

fn there(folder: &Path) -> Probe {
    match folder.metadata() {
        Ok(found) if found.is_dir() => Probe::Fine,
        Err(error) if error.kind() == ErrorKind::NotFound => Probe::Gone,
        _ => Probe::Failed,
    }
}

fn probe(folder: &Path, region: u64) -> Probe {
    let found = there(folder);
    if found != Probe::Fine {
        return found;
    }
    let file = folder.join("health");
    let found = write_and_read(&file).and_then(|same| {
        std::fs::remove_file(&file)?;
        Ok(same && room(folder, region)?)
    });
    match found {
        Ok(true) => Probe::Fine,
        Ok(false) => Probe::NoSpace,
        Err(error) => {
            let _ = std::fs::remove_file(&file);
            tracing::debug!(file = %file.display(), %error, "probe failed");
            match error.kind() {
                ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem => Probe::NoSpace,
                _ => Probe::Failed,
            }
        }
    }
}

/// An error as well when other bytes come back.
fn write_and_read(file: &Path) -> io::Result<bool> {
    const PAGE: [u8; 4096] = [0x5a; 4096];
    let flags = rustix::fs::OFlags::SYNC.bits() as i32;
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(file)?;
    file.write_all_at(&PAGE, 0)?;
    file.sync_all()?;
    // What the kernel keeps of it would be answered without asking the device.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut back = [0; PAGE.len()];
    file.read_exact_at(&mut back, 0)?;
    if back == PAGE { Ok(true) } else { Err(io::Error::other("other bytes came back")) }
}

/// Whether the file system has room for a region, or for what the region files still lack.
fn room(folder: &Path, region: u64) -> io::Result<bool> {
    let stat = rustix::fs::statvfs(folder)?;
    if stat.f_blocks == 0 {
        // It does not say.
        return Ok(true);
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= region {
        return Ok(true);
    }
    let mut lacking = 0;
    for file in std::fs::read_dir(folder)? {
        let meta = file?.metadata()?;
        lacking += meta.len().saturating_sub(meta.blocks() * 512);
    }
    Ok(free >= lacking)
}

#[cfg(test)]
mod tests {
    use super::{Probe, probe};

    #[test]
    fn a_probe_tells_a_folder_that_is_gone_from_one_that_works() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(probe(dir.path(), 1 << 20), Probe::Fine);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(probe(&dir.path().join("removed"), 1), Probe::Gone);
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(probe(&file, 1), Probe::Failed);
    }

    #[test]
    fn want_of_room_is_told_unless_the_regions_have_all_they_need() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("region"), [1; 8192]).unwrap();
        let more_than_any_file_system = 1 << 62;
        assert_eq!(probe(dir.path(), more_than_any_file_system), Probe::Fine);
        let sparse = std::fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 43).unwrap();
        assert_eq!(probe(dir.path(), more_than_any_file_system), Probe::NoSpace);
    }
}
