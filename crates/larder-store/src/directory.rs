//! The cache directory: ours or refused, locked, and probed for direct I/O.
//!
//! Layout: `format` (what wrote it), `lock`, `catalog.redb`, `pools/<pool>/` (region files).

use crate::error::StoreError;
use crate::pool::layout::{Layout, device_bytes};
use larder_model::{PoolName, PoolSpec};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What this version writes into `format`. Changed whenever the sealed form of a block, the key's
/// derivation or foyer's layout changes.
const FORMAT: &str = "larder cache 1";
/// How foyer's region files are called, before their number.
const REGION: &str = "foyer-storage-direct-fs-";
/// Files that may lie in a directory that is otherwise empty.
const HARMLESS: [&str; 4] = ["lock", "lost+found", "catalog.redb", "catalog.redb.damaged"];

/// The cache directory, locked as long as this lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates the directory or takes the one that is there, if it is ours.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(failed(path, "cannot create it"))?;
        check(path)?;
        let lock = lock(path)?;
        // Another process may have come first.
        if !check(path)? {
            let file = path.join("format");
            let new = path.join("format.new");
            fs::write(&new, format!("{FORMAT}\n")).map_err(failed(&new, "cannot write it"))?;
            fs::rename(&new, &file).map_err(failed(&file, "cannot write it"))?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The folder of a pool, made ready for its layout: what was written in regions of another
    /// length, or lies in regions beyond the last, is given up. With `reserve`, all regions take
    /// their space at once.
    pub(crate) fn pool(&self, spec: &PoolSpec, reserve: bool) -> Result<PathBuf, StoreError> {
        let folder = self.path.join("pools").join(spec.name.as_str());
        fs::create_dir_all(&folder).map_err(failed(&folder, "cannot create it"))?;
        let Some(layout) = Layout::new(spec) else { return Ok(folder) };
        let note = folder.join("regions");
        let said = format!("{} bytes each\n", layout.region);
        let same = fs::read_to_string(&note).is_ok_and(|found| found == said);
        let regions = regions(&folder).map_err(failed(&folder, "cannot list it"))?;
        if !same && !regions.is_empty() {
            tracing::warn!(pool = %spec.name, "the pool's regions have another length now: it starts empty");
        }
        for (number, file) in regions {
            if !same || number >= layout.regions {
                fs::remove_file(&file).map_err(failed(&file, "cannot remove it"))?;
            }
        }
        if !same {
            fs::write(&note, said).map_err(failed(&note, "cannot write it"))?;
        }
        if reserve {
            take_space(&spec.name, &folder, layout)?;
        }
        Ok(folder)
    }

    /// Warns about what is odd but no obstacle: too little space, pools that nobody configures.
    pub(crate) fn warn(&self, pools: &[PoolSpec]) {
        let wanted: u64 = pools.iter().map(device_bytes).sum();
        let taken =
            pools.iter().map(|pool| used_bytes(&self.path.join("pools").join(pool.name.as_str())));
        let free = rustix::fs::statvfs(&self.path).map(|stat| stat.f_bavail * stat.f_frsize);
        let taken: u64 = taken.sum();
        if let Ok(free) = free
            && free + taken < wanted
        {
            tracing::warn!(
                path = %self.path.display(), free, taken, wanted,
                "the file system has too little space for the pools: writes will fail when it is full"
            );
        }
        let Ok(folders) = fs::read_dir(self.path.join("pools")) else { return };
        for name in folders.flatten().filter_map(|folder| folder.file_name().into_string().ok()) {
            if !pools.iter().any(|pool| pool.name.as_str() == name) {
                tracing::warn!(
                    pool = name, path = %self.path.display(),
                    "a pool that is no longer configured still takes space: remove its folder"
                );
            }
        }
    }
}

/// Whether files in `folder` can be opened for direct I/O, as foyer opens them.
pub(crate) fn takes_direct_io(pool: &PoolName, folder: &Path) -> Result<bool, StoreError> {
    let probe = folder.join("probe");
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::NOATIME;
    let opened = OpenOptions::new()
        .create(true)
        .write(true)
        .read(true)
        .truncate(true)
        .custom_flags(flags.bits() as i32)
        .open(&probe);
    let direct = match opened {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => false,
        Err(error) => return Err(failed(&probe, "cannot write into it")(error)),
    };
    // A file system that refuses the flag may still have created the file.
    match fs::remove_file(&probe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&probe, "cannot remove it")(error));
        }
        _ => {}
    }
    if !direct {
        tracing::warn!(
            %pool, folder = %folder.display(),
            "the file system refuses direct I/O: blocks will be cached twice, here and by the kernel"
        );
    }
    Ok(direct)
}

/// Tells whether the directory is ours already; an error if it is somebody else's.
fn check(path: &Path) -> Result<bool, StoreError> {
    let file = path.join("format");
    match fs::read_to_string(&file) {
        Ok(found) if found.trim_end() == FORMAT => return Ok(true),
        Ok(found) => {
            return Err(StoreError::Format {
                path: path.to_owned(),
                found: found.trim_end().chars().take(80).collect(),
                expected: FORMAT.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(StoreError::Foreign { path: path.to_owned() });
        }
        Err(error) => return Err(failed(&file, "cannot read it")(error)),
    }
    for entry in fs::read_dir(path).map_err(failed(path, "cannot list it"))? {
        let entry = entry.map_err(failed(path, "cannot list it"))?;
        if !HARMLESS.iter().any(|name| entry.file_name() == *name) {
            return Err(StoreError::Foreign { path: path.to_owned() });
        }
    }
    Ok(false)
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let file = path.join("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(failed(&file, "cannot open it"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(&file, "cannot lock it")(error)),
    }
}

/// Lets the file system give all regions their space. Those that were made for nothing are removed.
fn take_space(pool: &PoolName, folder: &Path, layout: Layout) -> Result<(), StoreError> {
    let missing = missing_bytes(folder, layout);
    if missing > 0 {
        return Err(StoreError::NoRoom { path: folder.to_owned(), missing });
    }
    let mut made = Vec::new();
    for number in 0..layout.regions {
        let path = folder.join(format!("{REGION}{number:08}"));
        if !path.exists() {
            made.push(path.clone());
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed(&path, "cannot open it"))?;
        let none = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&file, none, 0, layout.region) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                tracing::warn!(
                    %pool, folder = %folder.display(),
                    "the file system cannot reserve space: the pool's files grow as they are filled"
                );
                return Ok(());
            }
            Err(Errno::NOSPC | Errno::DQUOT) => {
                let missing = missing_bytes(folder, layout).max(1);
                made.iter().for_each(|path| drop(fs::remove_file(path)));
                return Err(StoreError::NoRoom { path: folder.to_owned(), missing });
            }
            Err(error) => return Err(failed(&path, "cannot reserve its space")(error.into())),
        }
    }
    Ok(())
}

/// What the file system lacks for all regions; 0 where it does not say.
fn missing_bytes(folder: &Path, layout: Layout) -> u64 {
    match rustix::fs::statvfs(folder) {
        Ok(stat) if stat.f_blocks > 0 => {
            let there = used_bytes(folder) + stat.f_bavail * stat.f_frsize;
            (layout.regions * layout.region).saturating_sub(there)
        }
        _ => 0,
    }
}

/// The region files in a pool's folder with their numbers, as foyer names them.
fn regions(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(REGION));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

/// Bytes that the files of a folder really take.
fn used_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = regions(folder).unwrap_or_default();
    files
        .iter()
        .filter_map(|(_, file)| fs::metadata(file).ok())
        .map(|meta| meta.blocks() * 512)
        .sum()
}

fn failed(path: &Path, what: &'static str) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path: path.clone(), what, source }
}

#[cfg(test)]
mod tests {
    use super::{Directory, FORMAT, used_bytes};
    use crate::error::StoreError;
    use crate::pool::layout::Layout;
    use larder_model::{PoolName, PoolSpec};
    use std::fs;

    #[test]
    fn a_directory_is_taken_again_after_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        drop(Directory::open(&path).unwrap());
        assert_eq!(fs::read_to_string(path.join("format")).unwrap().trim(), FORMAT);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Directory::open(dir.path()).unwrap();
        let error = Directory::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()));
    }

    #[test]
    fn a_directory_that_is_not_ours_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "precious").unwrap();
        let error = Directory::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_of_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("format"), "larder cache 999\n").unwrap();
        let error = Directory::open(dir.path()).unwrap_err();
        assert!(matches!(&error, StoreError::Format { found, .. } if found == "larder cache 999"));
        fs::write(dir.path().join("format"), [0xff, 0xfe]).unwrap();
        assert!(matches!(Directory::open(dir.path()), Err(StoreError::Foreign { .. })));
    }

    #[test]
    fn regions_of_another_length_or_beyond_the_last_are_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let spec = |disk_bytes| PoolSpec {
            name: PoolName::shared(),
            memory_bytes: 0,
            disk_bytes,
            max_block_bytes: 1 << 20,
        };
        let small = spec(64 << 20);
        let folder = directory.pool(&small, false).unwrap();
        let region = |number: u64| folder.join(format!("foyer-storage-direct-fs-{number:08}"));
        let last = Layout::new(&small).unwrap().regions;
        for number in [0, last - 1, last] {
            fs::write(region(number), "x").unwrap();
        }
        directory.pool(&small, false).unwrap();
        assert!(region(0).exists() && region(last - 1).exists() && !region(last).exists());
        directory.pool(&spec(64 << 30), false).unwrap();
        assert!(!region(0).exists() && !region(last - 1).exists());
    }

    #[test]
    fn reserved_regions_take_their_space_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let spec = |disk_bytes| PoolSpec {
            name: PoolName::shared(),
            memory_bytes: 0,
            disk_bytes,
            max_block_bytes: 1 << 20,
        };
        let small = spec(32 << 20);
        let layout = Layout::new(&small).unwrap();
        let folder = directory.pool(&small, true).unwrap();
        // Twice, since the files are there the second time.
        for _ in 0..2 {
            assert!(used_bytes(&folder) >= layout.regions * layout.region);
            directory.pool(&small, true).unwrap();
        }
        let error = directory.pool(&spec(1 << 50), true).unwrap_err();
        let StoreError::NoRoom { path, missing } = &error else { panic!("{error}") };
        assert!(*missing > 1 << 49 && *path == folder, "{error}");
        assert_eq!(used_bytes(&folder), 0, "the regions of before had another length");
    }
}
