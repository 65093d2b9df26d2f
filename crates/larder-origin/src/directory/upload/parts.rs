//! The parts of an upload as files.
//!
//! Invariant: number, digest and checksum are in a part's name, so that one rename publishes all of
//! them with the bytes.

use super::super::checksum::{Algorithm, Checksum};
use super::super::key::Stamp;
use super::super::open::absent;
use super::super::refused;
use super::super::temp::{Sums, Temp};
use larder_model::{ETag, OriginError, Timestamp};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// One part that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// 1 to 10,000.
    pub number: u32,
    /// In bytes.
    pub size: u64,
    /// The MD5 of its bytes.
    pub etag: ETag,
    /// When it was uploaded.
    pub last_modified: Option<Timestamp>,
    /// The checksum of its bytes, where one was asked for.
    pub(in crate::directory) checksum: Option<Checksum>,
}

/// The name of the file of a part.
pub(super) fn part_name(number: u32, sums: &Sums) -> String {
    named(number, &hex::encode(sums.md5), sums.checksum.as_ref())
}

fn named(number: u32, md5: &str, checksum: Option<&Checksum>) -> String {
    let name = format!("part.{number:05}.{md5}");
    match checksum {
        Some(sum) => format!("{name}.{}.{}", sum.algorithm.name(), hex::encode(sum.as_bytes())),
        None => name,
    }
}

impl PartEntry {
    pub(super) fn file_name(&self) -> String {
        named(self.number, self.etag.opaque(), self.checksum.as_ref())
    }
}

/// Number, MD5 and checksum.
fn read_name(name: &str) -> Option<(u32, &str, Option<Checksum>)> {
    let mut parts = name.strip_prefix("part.")?.split('.');
    let (number, md5) = (parts.next()?.parse().ok()?, parts.next()?);
    let checksum = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some(algorithm), hex) => {
            let bytes = hex::decode(hex?).ok()?;
            Some(Checksum::new(Algorithm::of_name(algorithm)?, bytes)?)
        }
    };
    Some((number, md5, checksum))
}

/// The tag of a part.
pub(super) fn tag(md5: &str) -> Result<ETag, OriginError> {
    let tag = ETag::new(&format!("\"{md5}\""));
    tag.ok_or_else(|| refused(500, "InternalError", "The part's tag is not ASCII."))
}

/// Makes a temporary file the part `number`, the only one of this number. The upload must be held:
/// two of one number would remove each other.
pub(super) fn publish(folder: &Path, number: u32, name: &str, temp: Temp) -> io::Result<()> {
    temp.rename(&folder.join(name))?;
    for entry in fs::read_dir(folder)? {
        let other = entry?.file_name();
        let Some(other) = other.to_str().filter(|other| *other != name) else { continue };
        if read_name(other).is_some_and(|(other, ..)| other == number) {
            absent(fs::remove_file(folder.join(other)))?;
        }
    }
    Ok(())
}

/// The parts in the order of their numbers; none when the folder has gone.
pub(super) fn parts(folder: &Path) -> io::Result<Vec<PartEntry>> {
    let mut parts = Vec::new();
    for entry in absent(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name();
        let Some((number, md5, checksum)) = name.to_str().and_then(read_name) else { continue };
        let (Some(found), Ok(etag)) = (absent(entry.metadata())?, tag(md5)) else { continue };
        let stamp = Stamp::of(&found);
        let last_modified = timestamp(&stamp);
        parts.push(PartEntry { number, size: stamp.size, etag, last_modified, checksum });
    }
    parts.sort_by_key(|part| part.number);
    Ok(parts)
}

pub(super) fn last_modified(file: &File) -> io::Result<Option<Timestamp>> {
    Ok(timestamp(&Stamp::of(&file.metadata()?)))
}

fn timestamp(stamp: &Stamp) -> Option<Timestamp> {
    u64::try_from(stamp.modified.0).ok().map(|seconds| Timestamp(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::super::super::checksum::{Algorithm, Checksum};
    use super::{named, read_name};

    #[test]
    fn a_part_is_found_by_its_name() {
        let sum = Checksum::new(Algorithm::Crc32, vec![0, 1, 2, 255]);
        for checksum in [None, sum] {
            let name = named(7, "900150983cd24fb0d6963f7d28e17f72", checksum.as_ref());
            let read = read_name(&name);
            assert_eq!(read, Some((7, "900150983cd24fb0d6963f7d28e17f72", checksum)));
        }
        for other in ["upload.json", "part.x.y", "part.1", "part.1.a.CRC32", "part.1.a.CRC32.00"] {
            assert_eq!(read_name(other), None, "{other}");
        }
    }
}
