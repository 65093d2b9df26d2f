//! Joins the parts of an upload to one file.

use super::super::checksum::ObjectChecksum;
use super::super::put::NotCommitted;
use super::super::refused;
use super::super::temp::Temp;
use super::parts::{PartEntry, parts};
use super::{Begun, Completion};
use std::fs::File;
use std::io;
use std::path::Path;

/// Of every part but the last (S3 User Guide, "Amazon S3 multipart upload limits").
const MIN_PART_BYTES: u64 = 5 * 1024 * 1024;

/// The object to be.
pub(super) struct Joined {
    pub(super) temp: Temp,
    pub(super) checksum: Option<ObjectChecksum>,
}

/// Checks the client's list against the parts and joins them in one sealed temporary file. The
/// upload must be held.
pub(super) fn join(
    bucket: &Path,
    folder: &Path,
    begun: &Begun,
    wanted: &Completion,
) -> Result<Joined, NotCommitted> {
    let parts = chosen(folder, wanted)?;
    let checksum = summed(begun, wanted, &parts)?;
    let mut temp = Temp::create(bucket)?;
    for part in &parts {
        // Copied in the kernel where the file system can.
        let mut from = File::open(folder.join(part.file_name()))?;
        let copied = io::copy(&mut from, &mut temp.file)?;
        if copied != part.size {
            return Err(io::Error::other("a part changed while it was copied").into());
        }
    }
    temp.seal()?;
    Ok(Joined { temp, checksum })
}

fn refuse(code: &str, message: &str) -> NotCommitted {
    NotCommitted::Refused(refused(400, code, message))
}

/// The parts that the client names.
fn chosen(folder: &Path, wanted: &Completion) -> Result<Vec<PartEntry>, NotCommitted> {
    if wanted.parts.is_empty() {
        return Err(refuse("MalformedXML", "You must specify at least one part"));
    }
    if !wanted.parts.is_sorted_by(|a, b| a.number < b.number) {
        return Err(refuse("InvalidPartOrder", "The list of parts was not in ascending order."));
    }
    let found = parts(folder)?;
    let mut chosen = Vec::with_capacity(wanted.parts.len());
    for part in &wanted.parts {
        let tag = part.etag.trim_matches('"');
        let fits = |found: &&PartEntry| {
            found.number == part.number
                && found.etag.opaque() == tag
                && (part.checksum.is_none() || part.checksum == found.checksum)
        };
        let found = found.iter().find(fits).ok_or_else(|| {
            let message = "One or more of the specified parts could not be found. \
                The part may not have been uploaded, or its entity tag may not match.";
            refuse("InvalidPart", message)
        })?;
        chosen.push(found.clone());
    }
    let (_, before) = chosen.split_last().unzip();
    if before.into_iter().flatten().any(|part: &PartEntry| part.size < MIN_PART_BYTES) {
        let message = "Your proposed upload is smaller than the minimum allowed size";
        return Err(refuse("EntityTooSmall", message));
    }
    let size: u64 = chosen.iter().map(|part| part.size).sum();
    if wanted.size.is_some_and(|wanted| wanted != size) {
        let message = "The provided 'x-amz-mp-object-size' header does not match what was computed";
        return Err(refuse("InvalidRequest", message));
    }
    Ok(chosen)
}

/// The checksum of the object, as it was asked for when the upload began.
fn summed(
    begun: &Begun,
    wanted: &Completion,
    parts: &[PartEntry],
) -> Result<Option<ObjectChecksum>, NotCommitted> {
    let joined = begun.checksum.and_then(|(algorithm, kind)| {
        let sums: Option<Vec<_>> =
            parts.iter().map(|part| Some((part.checksum.clone()?, part.size))).collect();
        ObjectChecksum::joined(algorithm, kind, &sums?)
    });
    if let Some(stated) = &wanted.checksum {
        let text = stated.text();
        let holds = joined.as_ref().is_some_and(|joined| {
            joined.algorithm == stated.algorithm
                && joined.text.split_once('-').map_or(joined.text.as_str(), |(sum, _)| sum) == text
        });
        if !holds {
            let name = stated.algorithm.name();
            let message =
                format!("The {name} you specified did not match the calculated checksum.");
            return Err(refuse("BadDigest", &message));
        }
    }
    Ok(joined)
}
