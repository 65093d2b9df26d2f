//! Which keys a folder can hold, and the stamp that tells one state of a file from every other.
//!
//! Invariant: a path leaves this file only for a key whose parts are plain names, so no key leads
//! out of its bucket by spelling. Links are the business of [`super::open`].

use larder_model::ETag;
use md5::{Digest as _, Md5};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder in each bucket where temporary files, uploads and stored headers are. No key.
pub(super) const PRIVATE: &str = ".larder";

/// The longest key (S3 User Guide, "Naming Amazon S3 objects").
pub(super) const KEY_BYTES: usize = 1024;

/// The longest name of a file on the file systems of Linux (`NAME_MAX`).
const NAME_BYTES: usize = 255;

/// The granularity of file times: a kernel tick of 10 ms at the most, doubled.
const SETTLE: Duration = Duration::from_millis(20);

/// The file that stands for a key; otherwise the rule that the key breaks (see `KEYS.md`).
pub(super) fn path(bucket: &Path, key: &str) -> Result<PathBuf, &'static str> {
    let mut path = bucket.to_path_buf();
    for (depth, part) in key.split('/').enumerate() {
        check(depth, part)?;
        path.push(part);
    }
    Ok(path)
}

fn check(depth: usize, part: &str) -> Result<(), &'static str> {
    match part {
        "" => Err("it begins or ends with '/', or has '//' in it"),
        "." | ".." => Err("it has a part '.' or '..'"),
        PRIVATE if depth == 0 => Err("it lies in '.larder/', which is private"),
        part if part.contains('\0') => Err("it has a NUL byte"),
        part if part.len() > NAME_BYTES => Err("it has a part of more than 255 bytes"),
        _ => Ok(()),
    }
}

/// What identifies the content of a file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds since 1970.
    pub(super) modified: (i64, i64),
    /// When the inode changed last; nobody can set this one back.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            size: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// The tag: a digest, with a suffix so that nobody takes it for the MD5 of the content.
    pub(super) fn etag(&self) -> Option<ETag> {
        let mut digest = Md5::new();
        digest.update(self.inode.to_le_bytes());
        digest.update(self.size.to_le_bytes());
        for (seconds, nanos) in [self.modified, self.changed] {
            digest.update(seconds.to_le_bytes());
            digest.update(nanos.to_le_bytes());
        }
        ETag::new(&format!("\"{}-d\"", hex::encode(digest.finalize())))
    }

    /// How much longer a change of the file could leave its stamp as it is: file times tick, and
    /// two writes within one tick look alike. `None` once the tick is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "file times are wall-clock times of this machine and compare with nothing else"
    )]
    pub(super) fn unsettled(&self) -> Option<Duration> {
        let (seconds, nanos) = self.changed;
        let changed = UNIX_EPOCH
            + Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).unwrap_or(0));
        // A stamp of the future comes from another machine's clock; waiting would not help.
        let age = SystemTime::now().duration_since(changed).ok()?;
        SETTLE.checked_sub(age).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::path;
    use std::path::Path;

    fn check(key: &str, expected: Option<&str>) {
        let got = path(Path::new("/origin/bucket"), key).ok();
        assert_eq!(got.as_deref(), expected.map(Path::new), "{key:?}");
    }

    #[test]
    fn plain_keys_are_paths() {
        check("a", Some("/origin/bucket/a"));
        check("a/b c/.hidden", Some("/origin/bucket/a/b c/.hidden"));
        check("a/.larder/b", Some("/origin/bucket/a/.larder/b"));
        check("...", Some("/origin/bucket/..."));
        check("ключ\n", Some("/origin/bucket/ключ\n"));
        check(&"x".repeat(255), Some(&format!("/origin/bucket/{}", "x".repeat(255))));
    }

    #[test]
    fn no_other_key_is() {
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "./a",
            "a/./b",
            ".larder",
            ".larder/meta/x",
            "a\0b",
        ] {
            check(key, None);
        }
        check(&"x".repeat(256), None);
    }
}
