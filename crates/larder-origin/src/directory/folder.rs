//! The entries of one folder, sorted for a listing, and kept for the next page where sorting costs.
//!
//! Invariant: a kept folder is used only while the folder's own stamp says that no entry came or
//! went since it was read.

use super::key::Stamp;
use super::open::absent;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Folders with fewer entries are read anew for each page: that is as fast as looking them up.
const KEPT_FROM: usize = 500;

/// Entries of all kept folders together: about 64 MiB with names of usual length.
const KEPT_ENTRIES: usize = 1_000_000;

/// A name in a folder that may be, or lead to, an object. A folder's name ends in `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(Box<str>);

impl Entry {
    /// As it is sorted and as keys go on with it.
    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// Without a folder's `/`.
    pub(super) fn bare_name(&self) -> &str {
        self.0.trim_end_matches('/')
    }

    pub(super) fn is_folder(&self) -> bool {
        self.0.ends_with('/')
    }
}

/// The entries in no order. Names that are not UTF-8 and special files are left out, links are
/// files: whether they lead to one is looked at when they are listed. A folder that has gone is
/// empty.
pub(super) fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
    let found = absent(fs::read_dir(folder))?;
    Ok(found.into_iter().flatten().filter_map(|entry| entry.and_then(|e| read(&e)).transpose()))
}

fn read(entry: &fs::DirEntry) -> io::Result<Option<Entry>> {
    let name = entry.file_name();
    let (Some(name), Some(kind)) = (name.to_str(), absent(entry.file_type())?) else {
        return Ok(None);
    };
    Ok(if kind.is_dir() {
        Some(Entry(format!("{name}/").into()))
    } else {
        (kind.is_file() || kind.is_symlink()).then(|| Entry(name.into()))
    })
}

/// The large folders that were listed last.
#[derive(Debug, Default)]
pub(super) struct Folders(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    stamp: Stamp,
    entries: Arc<[Entry]>,
}

impl Folders {
    /// The entries of `folder` in order.
    pub(super) fn read(&self, folder: &Path) -> io::Result<Arc<[Entry]>> {
        let Some(before) = absent(fs::symlink_metadata(folder))? else {
            return Ok(Arc::default());
        };
        let before = Stamp::of(&before);
        if let Some(entries) = self.kept(folder, &before) {
            return Ok(entries);
        }
        // Within a tick of the last change, the stamp could stay as it is through another one.
        let settled = before.unsettled().is_none();
        let mut found = entries(folder)?.collect::<io::Result<Vec<_>>>()?;
        found.sort_unstable();
        let found: Arc<[Entry]> = found.into();
        if found.len() >= KEPT_FROM && settled {
            self.keep(folder, before, Arc::clone(&found));
        }
        Ok(found)
    }

    fn kept(&self, folder: &Path, stamp: &Stamp) -> Option<Arc<[Entry]>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|kept| kept.path == folder)?;
        let found = kept.remove(at)?;
        if found.stamp != *stamp {
            return None;
        }
        let entries = Arc::clone(&found.entries);
        kept.push_front(found);
        Some(entries)
    }

    fn keep(&self, folder: &Path, stamp: Stamp, entries: Arc<[Entry]>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.path != folder);
        kept.push_front(Kept { path: folder.to_path_buf(), stamp, entries });
        let mut total = 0;
        kept.retain(|kept| {
            total += kept.entries.len();
            total <= KEPT_ENTRIES
        });
    }
}
