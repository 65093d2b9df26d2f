//! The part of the guard that does not know of signatures: methods, lengths, hosts, framing.
//!
//! hyper has refused by then what is no HTTP at all (obs-fold, a space before a colon, a NUL, two
//! different lengths, a bad chunk size).

use crate::fault::{Fault, XML_TYPE};
use crate::query::escapes_are_whole;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version};
use percent_encoding::percent_decode_str;

/// The longest request target, in bytes (DESIGN §6).
pub(crate) const MAX_URI_BYTES: usize = 8 * 1024;

/// The longest header section, in bytes: names, values and four bytes of punctuation each.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;

pub(super) fn check(parts: &Parts, bodiless: bool) -> Result<(), Fault> {
    check_sizes(parts)?;
    check_host(parts)?;
    check_method(parts)?;
    check_length(parts, bodiless)?;
    let path = parts.uri.path();
    let readable = escapes_are_whole(path) && percent_decode_str(path).decode_utf8().is_ok();
    if readable { Ok(()) } else { Err(Fault::invalid_uri()) }
}

/// Whether this is a browser's form upload, which brings its signature in the form.
pub(super) fn is_form_post(parts: &Parts) -> bool {
    let form = |value: &HeaderValue| {
        let value = value.as_bytes();
        value.get(..19).is_some_and(|head| head.eq_ignore_ascii_case(b"multipart/form-data"))
    };
    parts.method == Method::POST && parts.headers.get_all(CONTENT_TYPE).iter().any(form)
}

fn check_sizes(parts: &Parts) -> Result<(), Fault> {
    let uri = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if uri > MAX_URI_BYTES {
        return Err(Fault::new(
            StatusCode::URI_TOO_LONG,
            "RequestURITooLong",
            "The URI used to make the request exceeds the maximum allowed size.",
        )
        .with("MaxSizeAllowed", MAX_URI_BYTES.to_string())
        .close());
    }
    let bytes: usize = parts.headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum();
    if bytes > MAX_HEADER_BYTES {
        return Err(Fault::bad(
            "RequestHeaderSectionTooLarge",
            "Your request header section exceeds the maximum allowed request header section size.",
        )
        .with("MaxSizeAllowed", MAX_HEADER_BYTES.to_string())
        .close());
    }
    Ok(())
}

/// Exactly one well-formed host, however often and wherever it is told.
fn check_host(parts: &Parts) -> Result<(), Fault> {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host.to_str().map_err(|_| Fault::unparsable())?),
        (None, _) => None,
        (Some(_), Some(_)) => return Err(Fault::unparsable()),
    };
    let host = match (header, authority) {
        // HTTP/2 names the host in :authority; HTTP/1 needs the header (RFC 9112 §3.2).
        (None, Some(authority)) if parts.version == Version::HTTP_2 => authority,
        (Some(header), None) => header,
        // What is signed is the header, what a server before us saw may be the other.
        (Some(header), Some(authority)) if header.eq_ignore_ascii_case(authority) => header,
        _ => return Err(Fault::unparsable()),
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let named = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.len() <= 253 && name.bytes().all(plain),
    };
    let numbered = port
        .is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    if named && numbered { Ok(()) } else { Err(Fault::unparsable()) }
}

fn check_method(parts: &Parts) -> Result<(), Fault> {
    let method = &parts.method;
    if [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE].contains(method) {
        return Ok(());
    }
    if method != Method::OPTIONS {
        return Err(Fault::method_not_allowed(method).close());
    }
    if !parts.headers.contains_key(ORIGIN) {
        return Err(Fault::bad(
            "BadRequest",
            "Insufficient information. Origin request header needed.",
        ));
    }
    let wanted = parts.headers.get("access-control-request-method");
    let wanted = wanted.and_then(|method| method.to_str().ok()).unwrap_or_default();
    let fault = Fault::new(
        StatusCode::FORBIDDEN,
        "AccessForbidden",
        "CORSResponse: CORS is not enabled for this bucket.",
    );
    Err(fault.with("Method", wanted).with("ResourceType", "BUCKET").header(CONTENT_TYPE, XML_TYPE))
}

/// A Transfer-Encoding only where S3 has it too: for a body in aws-chunked, whose length is told
/// otherwise (so boto3 sends its uploads over TLS). hyper drops a Content-Length that comes behind
/// one; [`crate::wire::Wire`] notices. No body where it has no meaning.
fn check_length(parts: &Parts, bodiless: bool) -> Result<(), Fault> {
    let mut encodings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        if parts.headers.contains_key(CONTENT_LENGTH) || encodings.next().is_some() {
            return Err(Fault::unparsable());
        }
        let payload = parts.headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes);
        let streams = payload.is_some_and(|payload| payload.starts_with(b"STREAMING-"));
        let writes = parts.method == Method::PUT || parts.method == Method::POST;
        if !(streams && writes && encoding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
            return Err(Fault::not_implemented().with("Header", "Transfer-Encoding").close());
        }
    }
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    if reads && !bodiless { Err(Fault::unparsable()) } else { Ok(()) }
}
