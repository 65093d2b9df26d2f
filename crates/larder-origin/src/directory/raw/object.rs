//! PUT, GET, HEAD and DELETE of one object, and its attributes.

use super::super::checksum::{Algorithm, ObjectChecksum};
use super::super::put::{refuse_key, tag_of};
use super::super::{DirectoryOrigin, key, read};
use super::answer::{self, bare, empty, invalid_argument, precondition_failed, xml};
use super::ask::Ask;
use super::body::Body;
use super::xml::Document;
use http::Method;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    RANGE,
};
use larder_model::{
    ByteRange, Conditions, ETag, ETagCondition, IfRange, ObjectMeta, OriginError, RangeSpec,
    RawAnswer, Unsatisfiable, Verdict,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Parameters that replace a header of the answer (S3 API, GetObject).
const OVERRIDES: &str = "response-";

/// The names of `x-amz-object-attributes`.
const ATTRIBUTES: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

impl DirectoryOrigin {
    pub(super) async fn put_raw(&self, ask: &Ask, body: Body) -> Result<RawAnswer, OriginError> {
        let bucket = self.bucket(ask.bucket()?).await?;
        let key = ask.key()?;
        key::path(&bucket, key.as_str()).map_err(|rule| refuse_key(key, rule))?;
        let (stored, precondition) = (ask.stored_headers()?, ask.precondition()?);
        let incoming = body.incoming(ask)?;
        let received = self.receive(&bucket, key, incoming, None).await?;
        let checksum = received.sums.checksum.as_ref().map(ObjectChecksum::whole);
        let stored = stored.with_checksum(checksum.as_ref());
        let stamp = self.commit(bucket, key.clone(), received.temp, stored, precondition).await?;
        let mut headers = HeaderMap::new();
        add_tag(&mut headers, &tag_of(&stamp)?);
        if let Some(checksum) = checksum {
            checksum.add_to(&mut headers);
        }
        Ok(bare(headers))
    }

    pub(super) async fn delete_raw(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let name = ask.object()?;
        let precondition = ask.delete_precondition()?;
        if read::check_version(&name).is_ok() {
            self.delete_object(&name.bucket, &name.key, precondition).await?;
        } else {
            // A version that never was is deleted already, as at S3.
            self.bucket(&name.bucket).await?;
        }
        Ok(empty(204))
    }

    pub(super) async fn get_object(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let name = ask.object()?;
        let part = ask.has("partNumber").then(|| ask.number("partNumber", 0)).transpose()?;
        read::check_part(part)?;
        let conditions = conditions(&ask.headers);
        let opened = self.open_object(ask).await?;
        let checksums = ask.header("x-amz-checksum-mode")?;
        let checksums = checksums.is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
        let spec = ask.header(RANGE.as_str())?.and_then(RangeSpec::parse);
        let spec = if part.is_some() { Some(RangeSpec::From(0)) } else { spec };
        let meta = read::meta(&name, &opened, checksums && (spec.is_none() || part.is_some()));
        match conditions.evaluate(&meta) {
            Verdict::Proceed => {}
            Verdict::NotModified => {
                return Ok(RawAnswer { headers: meta.headers, ..empty(304) });
            }
            Verdict::PreconditionFailed => return Err(precondition_failed()),
        }
        let spec = spec.filter(|_| conditions.range_applies(&meta));
        // Part 1 of an empty object is the object.
        let spec = spec.filter(|_| part.is_none() || meta.size > 0);
        let range = spec.map(|spec| spec.resolve(meta.size)).transpose().map_err(outside)?;
        let mut answer = RawAnswer {
            status: if range.is_some() { 206 } else { 200 },
            headers: answer_headers(ask, &meta, range)?,
            ..empty(200)
        };
        if ask.method == Method::GET {
            let range = range.or_else(|| ByteRange::new(0, meta.size));
            answer.body = read::body(self.0.name.clone(), name, opened, range);
        }
        Ok(answer)
    }

    pub(super) async fn show_attributes(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let mut asked = Vec::new();
        for value in ask.headers.get_all("x-amz-object-attributes") {
            let names = value.to_str().unwrap_or("?").split(',').map(str::trim);
            asked.extend(names.filter(|name| !name.is_empty()));
        }
        if asked.is_empty() || !asked.iter().all(|name| ATTRIBUTES.contains(name)) {
            return Err(invalid_argument("Invalid attribute name specified."));
        }
        let name = ask.object()?;
        let opened = self.open_object(ask).await?;
        let meta = read::meta(&name, &opened, false);
        let wants = |name| asked.contains(&name);
        let mut document = Document::new("GetObjectAttributesResponse");
        document.maybe("ETag", meta.etag.as_ref().map(ETag::opaque).filter(|_| wants("ETag")));
        if let Some(sum) = opened.stored.checksum().filter(|_| wants("Checksum")) {
            document.inside("Checksum", |inside| {
                let element = sum.algorithm.element();
                inside.text(&element, &sum.text).text("ChecksumType", sum.kind.name());
            });
        }
        document.maybe("StorageClass", wants("StorageClass").then_some("STANDARD"));
        document.maybe("ObjectSize", wants("ObjectSize").then(|| meta.size.to_string()));
        let mut answer = xml(document);
        let modified = meta.headers.get(LAST_MODIFIED).cloned();
        answer.headers.extend(modified.map(|modified| (LAST_MODIFIED, modified)));
        Ok(answer)
    }
}

pub(super) fn add_tag(headers: &mut HeaderMap, tag: &ETag) {
    headers.extend(HeaderValue::from_str(tag.as_str()).ok().map(|tag| (ETAG, tag)));
}

/// The algorithm that is asked for, without a checksum by it.
pub(super) fn asked_algorithm(ask: &Ask) -> Result<Option<Algorithm>, OriginError> {
    let Some(name) = ask.header("x-amz-checksum-algorithm")? else { return Ok(None) };
    let unknown = || {
        let message = "Checksum algorithm provided is unsupported. Please try again with any of \
            the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]";
        answer::invalid_request(message)
    };
    Algorithm::of_name(name).map(Some).ok_or_else(unknown)
}

fn answer_headers(
    ask: &Ask,
    meta: &ObjectMeta,
    range: Option<ByteRange>,
) -> Result<HeaderMap, OriginError> {
    let mut headers = meta.headers.clone();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let len = range.map_or(meta.size, |range| range.len());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    if let Some(range) = range {
        let value = HeaderValue::from_str(&range.to_content_range(meta.size));
        headers.extend(value.ok().map(|value| (CONTENT_RANGE, value)));
    }
    for name in ask.params().filter_map(|name| name.strip_prefix(OVERRIDES)) {
        let value = ask.param(&format!("{OVERRIDES}{name}")).unwrap_or_default();
        let wrong = || invalid_argument(format!("The value of {OVERRIDES}{name} is no header's"));
        let header = HeaderName::try_from(name).map_err(|_| wrong())?;
        headers.insert(header, HeaderValue::from_str(value).map_err(|_| wrong())?);
    }
    Ok(headers)
}

fn outside(error: Unsatisfiable) -> OriginError {
    let reply = crate::error::reply(416, "InvalidRange", "The requested range is not satisfiable");
    OriginError::RangeNotSatisfiable { size: Some(error.size), reply }
}

/// The conditional headers. A date that is none counts as missing (RFC 9110 §13.1.3).
fn conditions(headers: &HeaderMap) -> Conditions {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    Conditions {
        if_match: text(IF_MATCH).map(ETagCondition::parse),
        if_none_match: text(IF_NONE_MATCH).map(ETagCondition::parse),
        if_modified_since: text(IF_MODIFIED_SINCE).and_then(seconds),
        if_unmodified_since: text(IF_UNMODIFIED_SINCE).and_then(seconds),
        if_range: text(IF_RANGE).map(if_range),
    }
}

fn if_range(value: &str) -> IfRange {
    let value = value.trim();
    match seconds(value) {
        Some(date) => IfRange::Date(date),
        None if value.starts_with("W/") => IfRange::Never,
        None => IfRange::Tag(value.trim_matches('"').to_owned()),
    }
}

/// An HTTP date in seconds since 1970.
pub(super) fn seconds(date: &str) -> Option<i64> {
    let age = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let age = httpdate::parse_http_date(date).ok().and_then(age)?;
    i64::try_from(age.as_secs()).ok()
}
