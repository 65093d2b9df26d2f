//! CopyObject and UploadPartCopy.

use super::super::checksum::{Algorithm, ObjectChecksum};
use super::super::open::Opened;
use super::super::put::{refuse_key, tag_of};
use super::super::temp::{Received, Temp, copy, copy_range};
use super::super::{DirectoryOrigin, blocking, failed, key, no_such_bucket, read};
use super::answer::{invalid_argument, invalid_request, precondition_failed, show, xml};
use super::ask::Ask;
use super::body::BODY_BYTES;
use super::object::{asked_algorithm, seconds};
use super::xml::Document;
use larder_model::{
    BucketName, ByteRange, Conditions, ETagCondition, ObjectKey, ObjectName, OriginError,
    RangeSpec, RawAnswer, Timestamp, Verdict, VersionId,
};
use percent_encoding::percent_decode_str;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The header that makes a PUT a copy.
pub(super) const SOURCE: &str = "x-amz-copy-source";

/// How often a copy is begun anew because the source changed meanwhile.
const TRIES: u32 = 3;

/// What a directive says of headers or tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Copy,
    Replace,
}

impl DirectoryOrigin {
    pub(super) async fn copy_object(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let target = ask.object()?;
        let bucket = self.bucket(&target.bucket).await?;
        key::path(&bucket, target.key.as_str()).map_err(|rule| refuse_key(&target.key, rule))?;
        let metadata = directive(ask, "x-amz-metadata-directive")?;
        let tagging = directive(ask, "x-amz-tagging-directive")?;
        let (stored, precondition) = (ask.stored_headers()?, ask.precondition()?);
        let algorithm = asked_algorithm(ask)?;
        let source = source(ask)?;
        let same = (&source.bucket, &source.key) == (&target.bucket, &target.key);
        if same && metadata == Directive::Copy && tagging == Directive::Copy {
            let message = "This copy request is illegal because it is trying to copy an object to \
                itself without changing the object's metadata, storage class, website redirect \
                location or encryption attributes.";
            return Err(invalid_request(message));
        }
        let (temp, from, checksum) = self.copied(ask, &bucket, &source, algorithm).await?;
        let tags = match tagging {
            Directive::Copy => from.stored.tagging(),
            Directive::Replace => stored.tagging(),
        };
        let stored = if metadata == Directive::Copy { from.stored } else { stored };
        let stored = stored.with_tagging(tags).with_checksum(checksum.as_ref());
        let stamp = self.commit(bucket, target.key.clone(), temp, stored, precondition).await?;
        let modified = u64::try_from(stamp.modified.0).unwrap_or_default();
        let mut document = Document::new("CopyObjectResult");
        document.text("LastModified", show(Timestamp(modified * 1000)));
        document.text("ETag", tag_of(&stamp)?.as_str());
        if let Some(sum) = checksum {
            document
                .text(&sum.algorithm.element(), &sum.text)
                .text("ChecksumType", sum.kind.name());
        }
        Ok(xml(document))
    }

    pub(super) async fn copy_part(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let (upload, number) = super::upload::part(ask)?;
        let (begun, _) = self.parts_of(&upload).await?;
        let bucket = self.bucket(&upload.bucket).await?;
        let source = source(ask)?;
        let algorithm = begun.checksum.map(|(algorithm, _)| algorithm);
        let received = self.copied_range(ask, &bucket, &source, algorithm).await?;
        let part = self.publish_part(&upload, number, received).await?;
        let mut document = Document::new("CopyPartResult");
        document.maybe("LastModified", part.last_modified.map(show));
        document.text("ETag", part.etag.as_str());
        if let Some(sum) = part.checksum {
            document.text(&sum.algorithm.element(), sum.text());
        }
        Ok(xml(document))
    }

    /// The source, whole, in a sealed temporary file of `bucket`; with its checksum, as it is to be
    /// told of the copy.
    async fn copied(
        &self,
        ask: &Ask,
        bucket: &Path,
        source: &ObjectName,
        algorithm: Option<Algorithm>,
    ) -> Result<(Temp, Opened, Option<ObjectChecksum>), OriginError> {
        for _ in 0..TRIES {
            let from = self.open_source(ask, source).await?;
            if from.stamp.size > BODY_BYTES {
                let message = format!(
                    "The specified copy source is larger than the maximum allowable size for a \
                     copy source: {BODY_BYTES}"
                );
                return Err(invalid_request(message));
            }
            let bucket = bucket.to_path_buf();
            let work = move || copy_summed(&bucket, &from, algorithm).map(|done| (done, from));
            let done = blocking(work).await;
            let (done, from) = done.map_err(|error| self.not_copied(source, &error))?;
            if let Some((temp, checksum)) = done {
                return Ok((temp, from, checksum));
            }
        }
        Err(self.keeps_changing(source))
    }

    /// As [`DirectoryOrigin::copied`], for the bytes that are asked for.
    async fn copied_range(
        &self,
        ask: &Ask,
        bucket: &Path,
        source: &ObjectName,
        algorithm: Option<Algorithm>,
    ) -> Result<Received, OriginError> {
        for _ in 0..TRIES {
            let from = self.open_source(ask, source).await?;
            let range = source_range(ask, from.stamp.size)?;
            let bucket: PathBuf = bucket.to_path_buf();
            let work = move || copy_range(&bucket, &from, range, algorithm);
            let done = blocking(work).await;
            if let Some(received) = done.map_err(|error| self.not_copied(source, &error))? {
                return Ok(received);
            }
        }
        Err(self.keeps_changing(source))
    }

    async fn open_source(&self, ask: &Ask, source: &ObjectName) -> Result<Opened, OriginError> {
        let bucket = self.bucket(&source.bucket).await?;
        let from = read::open(&self.0.name, &bucket, source).await?;
        let meta = read::meta(source, &from, false);
        match conditions(ask)?.evaluate(&meta) {
            Verdict::Proceed => Ok(from),
            Verdict::NotModified | Verdict::PreconditionFailed => Err(precondition_failed()),
        }
    }

    fn not_copied(&self, source: &ObjectName, error: &io::Error) -> OriginError {
        match error.kind() {
            ErrorKind::NotFound => no_such_bucket(),
            _ => failed(&self.0.name, "copy", source, error),
        }
    }

    fn keeps_changing(&self, source: &ObjectName) -> OriginError {
        OriginError::Busy {
            origin: self.0.name.clone(),
            reason: format!("{source} changes while it is copied"),
            retry_after: Duration::from_secs(1),
        }
    }
}

/// A checksum that the source has is the copy's, too, unless it is over parts, which the copy has
/// not (S3 User Guide, "Checking object integrity"). Blocking.
fn copy_summed(
    bucket: &Path,
    from: &Opened,
    algorithm: Option<Algorithm>,
) -> io::Result<Option<(Temp, Option<ObjectChecksum>)>> {
    let theirs = from.stored.checksum();
    let wanted = algorithm.or(theirs.as_ref().map(|sum| sum.algorithm));
    let known = theirs.filter(|sum| {
        Some(sum.algorithm) == wanted && sum.kind == super::super::checksum::Kind::FullObject
    });
    if wanted.is_none() || known.is_some() {
        return Ok(copy(bucket, from)?.map(|temp| (temp, known)));
    }
    let done = copy_range(bucket, from, ByteRange::new(0, from.stamp.size), wanted)?;
    Ok(done.map(|received| {
        let checksum = received.sums.checksum.as_ref().map(ObjectChecksum::whole);
        (received.temp, checksum)
    }))
}

fn directive(ask: &Ask, name: &str) -> Result<Directive, OriginError> {
    match ask.header(name)? {
        None | Some("COPY") => Ok(Directive::Copy),
        Some("REPLACE") => Ok(Directive::Replace),
        Some(_) => Err(invalid_argument(format!("Unknown value of {name}"))),
    }
}

/// The object that is to be copied: `bucket/key`, percent-encoded, with or without a `/` before it
/// and a `?versionId=` behind it.
fn source(ask: &Ask) -> Result<ObjectName, OriginError> {
    let text = ask.header(SOURCE)?.unwrap_or_default();
    let invalid = || {
        invalid_argument(
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
        )
    };
    let (path, version) = match text.split_once("?versionId=") {
        Some((path, id)) => (path, Some(id)),
        None => (text, None),
    };
    let decode = |text| percent_decode_str(text).decode_utf8().map_err(|_| invalid());
    let path = decode(path.strip_prefix('/').unwrap_or(path))?;
    let (bucket, key) = path.split_once('/').ok_or_else(invalid)?;
    let version = version.map(decode).transpose()?.map(VersionId::new).transpose();
    Ok(ObjectName {
        origin: ask.origin.clone(),
        bucket: BucketName::new(bucket).map_err(|_| no_such_bucket())?,
        key: ObjectKey::new(key).map_err(|_| invalid())?,
        version_id: version.map_err(|_| invalid_argument("Invalid version id specified"))?,
    })
}

fn conditions(ask: &Ask) -> Result<Conditions, OriginError> {
    let text = |what: &str| ask.header(&format!("{SOURCE}-if-{what}"));
    let date = |what: &str| Ok::<_, OriginError>(text(what)?.and_then(seconds));
    Ok(Conditions {
        if_match: text("match")?.map(ETagCondition::parse),
        if_none_match: text("none-match")?.map(ETagCondition::parse),
        if_modified_since: date("modified-since")?,
        if_unmodified_since: date("unmodified-since")?,
        if_range: None,
    })
}

/// The bytes of the source that a part is to be; `None` for those of an empty one.
fn source_range(ask: &Ask, size: u64) -> Result<Option<ByteRange>, OriginError> {
    let too_large = |range: &ByteRange| range.len() > BODY_BYTES;
    let Some(text) = ask.header("x-amz-copy-source-range")? else {
        let whole = ByteRange::new(0, size);
        if whole.as_ref().is_some_and(too_large) {
            let message =
                format!("The part is larger than the maximum allowable size: {BODY_BYTES}");
            return Err(invalid_request(message));
        }
        return Ok(whole);
    };
    let Some(RangeSpec::FromTo(first, last)) = RangeSpec::parse(text) else {
        let message = "The x-amz-copy-source-range value must be of the form bytes=first-last \
            where first and last are the zero-based offsets of the first and last bytes to copy";
        return Err(invalid_argument(message));
    };
    let range = ByteRange::new(first, last.saturating_add(1)).filter(|range| range.end() <= size);
    let range = range.filter(|range| !too_large(range)).ok_or_else(|| {
        invalid_argument(format!("Range specified is not valid for source object of size: {size}"))
    })?;
    Ok(Some(range))
}
