//! From a raw request to what goes out: which headers stay, how the payload is declared, how its
//! checksum travels. This is where the dialects differ.

use super::Dialect;
use super::chunked::Framing;
use super::endpoint::Endpoint;
use super::sign::{EMPTY_SHA256, Envelope, UNSIGNED, UNSIGNED_TRAILER};
use super::upload::Upload;
use super::wire::Outgoing;
use aws_smithy_types::base64;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use larder_model::{BodyBroken, RawBody, RawRequest, Trailer};
use md5::Md5;
use sha2::{Digest as _, Sha256};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
const AWS_CHUNKED: &str = "aws-chunked";

/// Headers that the connection, the signature or the framing sets.
const OURS: [&str; 19] = [
    "authorization",
    "connection",
    "content-length",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
    "x-amz-trailer",
];

impl Dialect {
    /// Whether it knows S3's checksums other than Content-MD5. OSS and BOS refuse their headers, and
    /// any trailer. What they would have checked has been checked before a request comes here.
    fn takes_checksums(self) -> bool {
        self == Self::S3
    }
}

/// What goes out, but for the signature. The error tells what cannot be sent.
pub(super) fn prepare(
    request: RawRequest,
    dialect: Dialect,
    endpoint: &Endpoint,
) -> Result<(Envelope, Outgoing), String> {
    let RawRequest { method, bucket, key, query, mut headers, body } = request;
    let query = query_for(dialect, query);
    let uri = endpoint
        .uri(bucket.as_ref(), key.as_ref(), &query)
        .map_err(|error| format!("its URI cannot be built: {error}"))?;
    for name in OURS {
        headers.remove(name);
    }
    if let Some(name) = headers.iter().find(|(_, value)| !is_text(value)).map(|(name, _)| name) {
        return Err(format!("header {name} is not UTF-8, which no signature can cover"));
    }
    decode_encoding(&mut headers);
    if !dialect.takes_checksums() {
        let all: Vec<_> =
            headers.keys().filter(|name| is_checksum(name.as_str())).cloned().collect();
        for name in all {
            headers.remove(name);
        }
    }
    let (payload, len, outgoing) = match body {
        RawBody::Empty => (EMPTY_SHA256.to_owned(), 0, Outgoing::Empty),
        RawBody::Whole(bytes) => {
            if needs_digest(&method, &uri, &headers) {
                headers.insert(CONTENT_MD5, digest(&bytes));
            }
            let payload = hex::encode(Sha256::digest(&bytes));
            (payload, bytes.len() as u64, Outgoing::Whole(bytes))
        }
        RawBody::Stream { len, sha256, trailer, bytes } => {
            stream(dialect, &mut headers, len, sha256, trailer, bytes)
        }
    };
    // S3 wants a length with these methods also where there is nothing.
    let announced = len > 0 || method == Method::PUT || method == Method::POST;
    if announced {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    Ok((Envelope { method, uri, headers, payload }, outgoing))
}

fn stream(
    dialect: Dialect,
    headers: &mut HeaderMap,
    len: u64,
    sha256: Option<String>,
    trailer: Option<Trailer>,
    bytes: BoxStream<'static, Result<Bytes, BodyBroken>>,
) -> (String, u64, Outgoing) {
    let sent = trailer.filter(|_| dialect.takes_checksums());
    let framed = sent.and_then(|trailer| Some((Framing::of(len, &trailer.name)?, trailer)));
    let Some((framing, trailer)) = framed else {
        // An announced algorithm without its checksum is refused.
        if !headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum-")) {
            headers.remove(SDK_ALGORITHM);
        }
        let payload = sha256.unwrap_or_else(|| UNSIGNED.to_owned());
        return (payload, len, Outgoing::Stream(Upload::stream(bytes, len)));
    };
    // It is of the body without its framing, and the checksum does its work.
    headers.remove(CONTENT_MD5);
    headers.insert(TRAILER, HeaderValue::from_name(trailer.name.clone()));
    headers.insert(DECODED_LENGTH, HeaderValue::from(len));
    let encoding = match headers.get(CONTENT_ENCODING) {
        Some(more) => [AWS_CHUNKED.as_bytes(), b",", more.as_bytes()].concat(),
        None => AWS_CHUNKED.as_bytes().to_vec(),
    };
    if let Ok(encoding) = HeaderValue::from_bytes(&encoding) {
        headers.insert(CONTENT_ENCODING, encoding);
    }
    let upload = Upload::chunked(bytes, framing, trailer);
    (UNSIGNED_TRAILER.to_owned(), framing.encoded_len(), Outgoing::Stream(upload))
}

fn is_text(value: &HeaderValue) -> bool {
    std::str::from_utf8(value.as_bytes()).is_ok()
}

fn is_checksum(name: &str) -> bool {
    name.starts_with("x-amz-checksum-") || name == SDK_ALGORITHM || name == "x-amz-mp-object-size"
}

fn query_for(dialect: Dialect, mut query: Vec<(String, String)>) -> Vec<(String, String)> {
    if !dialect.takes_checksums() {
        query.retain(|(name, _)| !is_checksum(&name.to_ascii_lowercase()));
    }
    query
}

/// Makes one Content-Encoding of all, without the framing that the client's body had.
fn decode_encoding(headers: &mut HeaderMap) {
    let all = headers.get_all(CONTENT_ENCODING).iter();
    let mut texts = all.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()).peekable();
    if texts.peek().is_none() {
        return;
    }
    let texts: Vec<&str> = texts.collect();
    if texts.len() == 1 && !texts[0].to_ascii_lowercase().contains(AWS_CHUNKED) {
        return;
    }
    let parts = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    let kept: Vec<&str> =
        parts.filter(|part| !part.is_empty() && !part.eq_ignore_ascii_case(AWS_CHUNKED)).collect();
    match HeaderValue::try_from(kept.join(",")) {
        Ok(value) if !kept.is_empty() => headers.insert(CONTENT_ENCODING, value),
        _ => headers.remove(CONTENT_ENCODING),
    };
}

/// Whether the operation wants its body's digest, and nothing else in the request is one: S3 and all
/// that follow it refuse DeleteObjects and most settings of buckets without. A client's own checksum
/// may be one that this dialect does not take.
fn needs_digest(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let setting = uri.query().is_some_and(|query| {
        query.split('&').any(|part| !part.contains('=') || part.starts_with("versionId="))
    });
    let covered = headers.contains_key(CONTENT_MD5)
        || headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum-"));
    (method == Method::PUT || method == Method::POST) && setting && !covered
}

fn digest(bytes: &[u8]) -> HeaderValue {
    let text = base64::encode(Md5::digest(bytes));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}
