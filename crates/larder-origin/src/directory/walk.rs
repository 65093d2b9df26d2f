//! Walks a bucket's folder in the order of S3's LIST: by the bytes of the whole key.
//!
//! That order is not a folder's own: `a-b` comes before `a/b`, since `-` is less than `/`. Sorting
//! each folder's entries with a `/` behind the names of folders gives it, because no name has a `/`
//! in it, and so the keys of one folder are never interleaved with its neighbours.
//!
//! Invariant: only folders that can hold a key behind the marker, and with the prefix, are read;
//! only files that are listed are looked at.

use super::folder::{Entry, Folders};
use super::key::{self, KEY_BYTES, PRIVATE};
use super::open::{is_plain_folder, visible};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One item of a listing.
#[derive(Debug)]
pub(super) enum Item {
    Object(String, Metadata),
    Prefix(String),
}

impl Item {
    /// The key or the prefix: where the item stands in the order.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Object(name, _) | Self::Prefix(name) => name,
        }
    }
}

/// A walk in progress. Blocking.
pub(super) struct Walk<'a> {
    bucket: &'a Path,
    folders: &'a Folders,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    /// Only items behind this one are told.
    after: &'a str,
    stack: Vec<Frame>,
    /// The prefix that was rolled up last; everything below it is done.
    rolled: Option<String>,
}

struct Frame {
    /// The key up to and with the folder's `/`; empty for the bucket.
    base: String,
    entries: Arc<[Entry]>,
    next: usize,
}

impl<'a> Walk<'a> {
    /// Begins behind `after`, which may be empty, as may the prefix.
    pub(super) fn new(
        bucket: &'a Path,
        folders: &'a Folders,
        prefix: &'a str,
        delimiter: Option<&'a str>,
        after: &'a str,
    ) -> io::Result<Self> {
        let mut walk =
            Self { bucket, folders, prefix, delimiter, after, stack: Vec::new(), rolled: None };
        let base = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
        let folder = match base.strip_suffix('/') {
            None => Ok(bucket.to_path_buf()),
            Some(base) => key::path(bucket, base),
        };
        // A prefix that no key of a folder can have finds nothing, as does one through a link.
        if let Ok(folder) = folder
            && is_plain_folder(bucket, &folder)?
        {
            walk.descend(base.to_owned())?;
        }
        Ok(walk)
    }

    /// The next item; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item>> {
        while let Some((name, is_folder)) = self.step() {
            if let Some(common) = self.common_prefix(&name) {
                // A prefix is listed if it is behind the marker itself and holds an object.
                if common > self.after && self.exists(&name, is_folder)? {
                    let common = common.to_owned();
                    self.rolled = Some(common.clone());
                    return Ok(Some(Item::Prefix(common)));
                }
            } else if is_folder {
                if name.as_str() > self.after || self.after.starts_with(&name) {
                    self.descend(name)?;
                }
            } else if name.as_str() > self.after
                && let Some(found) = visible(self.bucket, &self.path(&name))?
            {
                return Ok(Some(Item::Object(name, found)));
            }
        }
        Ok(None)
    }

    /// The next name in order that has the prefix and is not rolled up yet; a folder's with its `/`.
    fn step(&mut self) -> Option<(String, bool)> {
        while let Some(frame) = self.stack.last_mut() {
            let Some(entry) = frame.entries.get(frame.next) else {
                self.stack.pop();
                continue;
            };
            frame.next += 1;
            let name = format!("{}{}", frame.base, entry.name());
            if !name.starts_with(self.prefix) {
                if name.as_str() > self.prefix {
                    self.stack.pop();
                }
                continue;
            }
            let rolled = self.rolled.as_ref().is_some_and(|rolled| name.starts_with(rolled));
            let private = frame.base.is_empty() && entry.bare_name() == PRIVATE;
            let too_long = name.len() > KEY_BYTES;
            if rolled || private || too_long {
                continue;
            }
            return Some((name, entry.is_folder()));
        }
        None
    }

    fn common_prefix<'n>(&self, name: &'n str) -> Option<&'n str> {
        let delimiter = self.delimiter?;
        let at = name[self.prefix.len()..].find(delimiter)?;
        Some(&name[..self.prefix.len() + at + delimiter.len()])
    }

    fn exists(&self, name: &str, is_folder: bool) -> io::Result<bool> {
        let path = self.path(name);
        if is_folder {
            holds_object(self.bucket, &path, name.len())
        } else {
            Ok(visible(self.bucket, &path)?.is_some())
        }
    }

    fn descend(&mut self, base: String) -> io::Result<()> {
        let entries = self.folders.read(&self.path(&base))?;
        let next = self.first(&base, &entries);
        self.stack.push(Frame { base, entries, next });
        Ok(())
    }

    /// The first entry that may matter: not before the prefix, and not before the marker unless the
    /// marker lies in it. Both are found by halving: a page in a huge folder must not look at
    /// everything before it.
    fn first(&self, base: &str, entries: &[Entry]) -> usize {
        let start = |bound: &str| match bound.strip_prefix(base) {
            Some(rest) => entries.partition_point(|entry| {
                entry.name() < rest && !(entry.is_folder() && rest.starts_with(entry.name()))
            }),
            None => 0,
        };
        start(self.prefix).max(start(self.after))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bucket.join(name.trim_end_matches('/'))
    }
}

/// Whether there is any object in `folder`, whose keys begin with `base_bytes` bytes.
pub(super) fn holds_object(bucket: &Path, folder: &Path, base_bytes: usize) -> io::Result<bool> {
    let mut open = vec![(folder.to_path_buf(), base_bytes)];
    while let Some((folder, base_bytes)) = open.pop() {
        for entry in super::folder::entries(&folder)? {
            let entry = entry?;
            let key_bytes = base_bytes + entry.name().len();
            let path = folder.join(entry.bare_name());
            if key_bytes > KEY_BYTES {
                continue;
            } else if entry.is_folder() {
                open.push((path, key_bytes));
            } else if visible(bucket, &path)?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
