//! GetObject and HeadObject.

use crate::body::Exact;
use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::refusal::{Asked, read_fault};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use larder_engine::{Body, ReadRequest, Source};
use larder_model::{
    Action, BucketName, ByteRange, Conditions, Dataset, ETagCondition, IfRange, ObjectKey,
    ObjectMeta, Permit, RangeSpec, VersionId,
};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tracing::Instrument;

const X_LARDER_CACHE: HeaderName = HeaderName::from_static("x-larder-cache");
const X_LARDER_JOB: HeaderName = HeaderName::from_static("x-larder-job");
const X_AMZ_CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const X_AMZ_VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// SSE-C: objects that only their reader can decrypt are never cached, and not served yet.
const SSE_CUSTOMER: [HeaderName; 3] = [
    HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm"),
    HeaderName::from_static("x-amz-server-side-encryption-customer-key"),
    HeaderName::from_static("x-amz-server-side-encryption-customer-key-md5"),
];

/// The headers of a 304 (RFC 9110 §15.4.5).
pub(crate) static NOT_MODIFIED_HEADERS: [HeaderName; 7] =
    [ETAG, LAST_MODIFIED, CACHE_CONTROL, EXPIRES, VARY, CONTENT_LOCATION, X_AMZ_VERSION_ID];

/// `response-*` parameters and the header that each overrides in this one answer.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-content-type", CONTENT_TYPE),
    ("response-expires", EXPIRES),
];

/// A job's name longer than this is ignored.
const MAX_JOB_BYTES: usize = 128;

/// GET of an object. `seen` becomes the dataset as soon as it is known, for the metrics.
pub(crate) async fn get(
    call: &Call<'_>,
    bucket: &BucketName,
    key: &ObjectKey,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    let (permit, request, asked) = prepare(call, bucket, key, seen)?;
    let checksums = request.checksums;
    // What is at hand needs no task to wait in, and no span for the lines that waiting may log.
    let answer = match call.reads.get_now(&permit, &request) {
        Some(answer) => Ok(answer),
        None => call.reads.get(&permit, request).instrument(call.span()).await,
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Err(read_fault(error, asked)),
    };
    let len = answer.range.map_or(answer.meta.size, |range| range.len());
    let mut reply = reply(&answer.meta, answer.range, answer.source, checksums);
    override_headers(call, &mut reply.headers)?;
    reply.body = match answer.body {
        Body::Full(bytes) if bytes.len() as u64 == len => s3s::Body::from(bytes),
        Body::Full(bytes) => {
            let stream = futures_util::stream::iter([Ok(bytes)]);
            s3s::Body::http_body_unsync(Exact::new(Box::pin(stream), len, call.id))
        }
        Body::Stream(stream) => s3s::Body::http_body_unsync(Exact::new(stream, len, call.id)),
    };
    Ok(reply)
}

/// HEAD of an object.
pub(crate) async fn head(
    call: &Call<'_>,
    bucket: &BucketName,
    key: &ObjectKey,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    let (permit, request, asked) = prepare(call, bucket, key, seen)?;
    let checksums = request.checksums;
    let head = match call.reads.head(&permit, request).instrument(call.span()).await {
        Ok(head) => head,
        Err(error) => return Err(read_fault(error, asked)),
    };
    let mut reply = reply(&head.meta, head.range, head.source, checksums);
    override_headers(call, &mut reply.headers)?;
    Ok(reply)
}

/// Resolves, authorises and parses; no await, so that the rules are held for a moment only.
fn prepare<'c>(
    call: &Call<'c>,
    bucket: &BucketName,
    key: &ObjectKey,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<(Permit, ReadRequest, Asked<'c>), Fault> {
    if SSE_CUSTOMER.iter().any(|name| call.headers.contains_key(name)) {
        return Err(Fault::not_implemented().with("Header", SSE_CUSTOMER[0].as_str()));
    }
    let version_id = match call.query.get("versionId") {
        None => None,
        Some("") => {
            let text = "Version id cannot be the empty string";
            return Err(Fault::invalid_argument(text, "versionId", ""));
        }
        Some(id) => Some(VersionId::new(id).map_err(|_| {
            Fault::invalid_argument("Invalid version id specified", "versionId", "")
        })?),
    };
    let rules = call.rules.load();
    let Some(resolved) = rules.namespace.resolve(bucket, key, version_id) else {
        let known = !rules.namespace.bucket(bucket).is_empty();
        return Err(if known {
            Fault::access_denied()
        } else {
            Fault::no_such_bucket(bucket.as_str())
        });
    };
    let permit = rules
        .grants
        .authorize(call.principal, &resolved.dataset, Action::Read)
        .map_err(|_| Fault::access_denied())?;
    let aliased = resolved.dataset.alias.is_some();
    *seen = Some(resolved.dataset);
    let (range_header, range) = parse_range(call.headers);
    let conditions = parse_conditions(call.headers);
    let condition = if conditions.if_match.is_some() { "If-Match" } else { "If-Unmodified-Since" };
    let request = ReadRequest {
        name: resolved.name,
        range,
        part_number: None,
        conditions,
        checksums: call
            .headers
            .get(X_AMZ_CHECKSUM_MODE)
            .is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled")),
        job: job(call),
    };
    Ok((permit, request, Asked { range: range_header, condition, aliased }))
}

/// The Range header, and what S3 makes of it: several, or a malformed one, are as none.
fn parse_range(headers: &HeaderMap) -> (Option<&str>, Option<RangeSpec>) {
    let mut values = headers.get_all(RANGE).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let text = value.to_str().ok();
            (text, text.and_then(RangeSpec::parse))
        }
        _ => (None, None),
    }
}

/// Dates that are none are ignored (RFC 9110 §13.1.3).
fn parse_conditions(headers: &HeaderMap) -> Conditions {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let date = |text: &str| {
        let moment = httpdate::parse_http_date(text).ok()?;
        i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    };
    Conditions {
        if_match: text(IF_MATCH).map(ETagCondition::parse),
        if_none_match: text(IF_NONE_MATCH).map(ETagCondition::parse),
        if_modified_since: text(IF_MODIFIED_SINCE).and_then(date),
        if_unmodified_since: text(IF_UNMODIFIED_SINCE).and_then(date),
        if_range: text(IF_RANGE).map(|value| match date(value) {
            Some(seconds) => IfRange::Date(seconds),
            None if value.starts_with("W/") => IfRange::Never,
            None => IfRange::Tag(value.trim().trim_matches('"').to_owned()),
        }),
    }
}

fn job(call: &Call<'_>) -> Arc<str> {
    let named = call.headers.get(X_LARDER_JOB).and_then(|value| value.to_str().ok());
    match named.filter(|name| (1..=MAX_JOB_BYTES).contains(&name.len())) {
        Some(name) => name.into(),
        None => call.principal.as_str().into(),
    }
}

/// Status and headers of an answer that serves something.
fn reply(meta: &ObjectMeta, range: Option<ByteRange>, source: Source, checksums: bool) -> Reply {
    let mut headers = HeaderMap::with_capacity(meta.headers.keys_len() + 8);
    let checksums = checksums && range.is_none();
    for (name, value) in &meta.headers {
        // Told only when asked for, and true of the whole object only.
        if checksums || !name.as_str().starts_with("x-amz-checksum-") {
            headers.append(name.clone(), value.clone());
        }
    }
    let mut status = StatusCode::OK;
    let mut len = meta.size;
    if let Some(range) = range {
        status = StatusCode::PARTIAL_CONTENT;
        len = range.len();
        if let Ok(value) = HeaderValue::try_from(range.to_content_range(meta.size)) {
            headers.insert(CONTENT_RANGE, value);
        }
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_LARDER_CACHE, HeaderValue::from_static(source.as_str()));
    Reply { status, headers, body: s3s::Body::empty() }
}

fn override_headers(call: &Call<'_>, headers: &mut HeaderMap) -> Result<(), Fault> {
    for (name, value) in call.query.iter() {
        let Some((_, header)) = OVERRIDES.iter().find(|(parameter, _)| *parameter == name) else {
            continue;
        };
        if call.unsigned {
            return Err(Fault::bad(
                "InvalidRequest",
                "Request specific response headers cannot be used for anonymous GET requests.",
            ));
        }
        let value = HeaderValue::try_from(value).map_err(|_| {
            Fault::invalid_argument(
                "Header value cannot be represented using ISO-8859-1.",
                name,
                value,
            )
        })?;
        headers.insert(header, value);
    }
    Ok(())
}
