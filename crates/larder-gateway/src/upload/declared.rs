//! What a request's headers say of its body, parsed before a byte of it is read.

use super::checks::{Algorithm, CHECKSUM_PREFIX, Promise, Promises, decode_md5};
use crate::fault::Fault;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, StatusCode};

pub(crate) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
pub(crate) const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_DECODED_CONTENT_LENGTH: HeaderName =
    HeaderName::from_static("x-amz-decoded-content-length");
const X_AMZ_TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const X_AMZ_SDK_CHECKSUM_ALGORITHM: HeaderName =
    HeaderName::from_static("x-amz-sdk-checksum-algorithm");

/// What a body is for, which decides what its headers mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The bytes of an object or of a part.
    Object,
    /// A document that the headers' checksums are of.
    Document,
    /// A document whose request carries the checksums of an object.
    Completion,
}

/// How the body is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// As it is.
    Plain,
    /// aws-chunked, with or without signatures.
    Chunked {
        /// Whether each chunk, and the trailer, is signed.
        signed: bool,
    },
}

/// The declarations of one request.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) shape: Shape,
    /// The payload's length in bytes.
    pub(crate) len: u64,
    pub(crate) promises: Promises,
    /// The announced trailer.
    pub(crate) trailer: Option<HeaderName>,
}

impl Declared {
    /// Reads them. `wire_len`: how long the body is on the wire, where that is known.
    pub(crate) fn parse(
        headers: &HeaderMap,
        wire_len: Option<u64>,
        purpose: Purpose,
    ) -> Result<Self, Fault> {
        let payload = text(headers, &X_AMZ_CONTENT_SHA256)?;
        let (shape, trailing) = match payload {
            None | Some("UNSIGNED-PAYLOAD") => (Shape::Plain, false),
            Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => (Shape::Chunked { signed: false }, true),
            Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD") => (Shape::Chunked { signed: true }, false),
            Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") => {
                (Shape::Chunked { signed: true }, true)
            }
            Some(_) => (Shape::Plain, false),
        };
        let mut promises = Promises::default();
        if let (Shape::Plain, Some(text)) = (shape, payload)
            && text != "UNSIGNED-PAYLOAD"
        {
            promises.sha256 = Some(parse_sha256(text)?);
        }
        promises.md5 = parse_md5(headers)?;
        let trailer = parse_trailer(headers, trailing)?;
        promises.checksum = parse_checksum(headers, purpose, trailer)?;
        let len = parse_length(headers, shape, wire_len)?;
        Ok(Self { shape, len, promises, trailer: trailer.map(Algorithm::header) })
    }
}

/// The digests among the headers of a body that is not framed.
pub(super) fn parse_promises(headers: &HeaderMap) -> Result<Promises, Fault> {
    let checksum = parse_checksum(headers, Purpose::Document, None)?;
    Ok(Promises { sha256: None, md5: parse_md5(headers)?, checksum })
}

/// Content-Length is hyper's to check; `wire_len` is what hyper will yield.
fn parse_length(headers: &HeaderMap, shape: Shape, wire_len: Option<u64>) -> Result<u64, Fault> {
    match shape {
        Shape::Plain if headers.contains_key(CONTENT_LENGTH) => wire_len.ok_or_else(missing_length),
        Shape::Plain => wire_len.filter(|len| *len > 0).ok_or_else(missing_length),
        Shape::Chunked { .. } => {
            let text = text(headers, &X_AMZ_DECODED_CONTENT_LENGTH)?.ok_or_else(missing_length)?;
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|_| digits).ok_or_else(|| {
                Fault::invalid_argument(
                    "x-amz-decoded-content-length must be a number of bytes",
                    X_AMZ_DECODED_CONTENT_LENGTH.as_str(),
                    text,
                )
            })
        }
    }
}

/// Whether the request says how long its body is, be it 0.
pub(crate) fn has_length(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH)
}

fn parse_sha256(text: &str) -> Result<[u8; 32], Fault> {
    let mut digest = [0; 32];
    match hex::decode_to_slice(text, &mut digest) {
        Ok(()) => Ok(digest),
        Err(_) => Err(Fault::invalid_argument(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD or a valid sha256 value.",
            X_AMZ_CONTENT_SHA256.as_str(),
            text,
        )),
    }
}

fn parse_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, Fault> {
    let Some(text) = text(headers, &CONTENT_MD5)? else { return Ok(None) };
    match decode_md5(text.as_bytes()) {
        Some(md5) => Ok(Some(md5)),
        None => Err(Fault::bad("InvalidDigest", "The Content-MD5 you specified was invalid.")
            .with("Content-MD5", text)),
    }
}

/// The checksum that comes behind the body.
fn parse_trailer(headers: &HeaderMap, trailing: bool) -> Result<Option<Algorithm>, Fault> {
    match (text(headers, &X_AMZ_TRAILER)?, trailing) {
        (None, false) => Ok(None),
        (Some(name), true) => {
            let name = name.trim().to_ascii_lowercase();
            Algorithm::of_header(&name).map(Some).ok_or_else(|| {
                Fault::bad(
                    "InvalidRequest",
                    "The value specified in the x-amz-trailer header is not supported",
                )
            })
        }
        (None, true) => Err(Fault::bad(
            "InvalidRequest",
            "Missing required header for this request: x-amz-trailer",
        )),
        (Some(_), false) => Err(Fault::bad(
            "InvalidRequest",
            "x-amz-trailer needs an x-amz-content-sha256 that ends in -TRAILER",
        )),
    }
}

fn parse_checksum(
    headers: &HeaderMap,
    purpose: Purpose,
    trailer: Option<Algorithm>,
) -> Result<Option<Promise>, Fault> {
    let mut found = trailer.map(Promise::Trailer);
    for name in headers.keys().filter(|name| is_checksum(name) && purpose != Purpose::Completion) {
        let Some(algorithm) = Algorithm::of_header(name.as_str()) else {
            let message = format!("{name} is not a checksum that can be verified here");
            return Err(Fault::bad("InvalidRequest", message));
        };
        let value = text(headers, name)?.and_then(|text| algorithm.decode(text.as_bytes()));
        let value = value.ok_or_else(|| invalid_checksum(algorithm))?;
        if found.replace(Promise::Header(algorithm, value)).is_some() {
            return Err(Fault::bad(
                "InvalidRequest",
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            ));
        }
    }
    if let Some(named) = text(headers, &X_AMZ_SDK_CHECKSUM_ALGORITHM)? {
        check_named(named, found.as_ref(), purpose)?;
    }
    Ok(found)
}

/// `x-amz-sdk-checksum-algorithm` must name the checksum that is there.
fn check_named(named: &str, found: Option<&Promise>, purpose: Purpose) -> Result<(), Fault> {
    match found {
        Some(Promise::Header(algorithm, _) | Promise::Trailer(algorithm)) => {
            if named.eq_ignore_ascii_case(algorithm.as_str()) {
                return Ok(());
            }
            let text = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
            Err(Fault::bad("InvalidRequest", text))
        }
        None if purpose == Purpose::Object => Err(Fault::bad(
            "InvalidRequest",
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or \
             x-amz-trailer headers were found.",
        )),
        None => Ok(()),
    }
}

/// Whether a header holds a checksum's value.
pub(crate) fn is_checksum(name: &HeaderName) -> bool {
    let suffix = name.as_str().strip_prefix(CHECKSUM_PREFIX);
    suffix.is_some_and(|suffix| !matches!(suffix, "algorithm" | "type" | "mode"))
}

/// 400 for a checksum whose value is none.
pub(crate) fn invalid_checksum(algorithm: Algorithm) -> Fault {
    let message = format!("Value for {} header is invalid.", algorithm.header());
    Fault::bad("InvalidRequest", message)
}

/// 411.
pub(crate) fn missing_length() -> Fault {
    Fault::new(
        StatusCode::LENGTH_REQUIRED,
        "MissingContentLength",
        "You must provide the Content-Length HTTP header.",
    )
}

/// The only value of a header, as text.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Fault> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Fault::unparsable()),
        (Some(_), Some(_)) => {
            Err(Fault::bad("InvalidRequest", format!("The header {name} may be given only once")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Declared, Promise, Purpose, Shape};
    use crate::upload::checks::Algorithm;
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn parse(pairs: &[(&'static str, &str)], purpose: Purpose) -> Result<Declared, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let wire_len = headers.get("content-length").map(|v| v.to_str().unwrap().parse().unwrap());
        Declared::parse(&headers, wire_len, purpose).map_err(|fault| fault.code().to_owned())
    }

    fn check(pairs: &[(&'static str, &str)], expected: &str) {
        let found = parse(pairs, Purpose::Object).map(|declared| declared.len);
        assert_eq!(found, Err(expected.to_owned()), "{pairs:?}");
    }

    const LENGTH: (&str, &str) = ("content-length", "5");
    const SHA: &str = "x-amz-content-sha256";
    const UNSIGNED: (&str, &str) = (SHA, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    const DECODED: (&str, &str) = ("x-amz-decoded-content-length", "5");

    #[test]
    fn what_is_declared_is_read() {
        let plain = parse(&[LENGTH], Purpose::Object).unwrap();
        assert_eq!((plain.shape, plain.len), (Shape::Plain, 5));
        let trailer = ("x-amz-trailer", "x-amz-checksum-crc32");
        let chunked = parse(&[UNSIGNED, DECODED, trailer], Purpose::Object).unwrap();
        assert_eq!((chunked.shape, chunked.len), (Shape::Chunked { signed: false }, 5));
        assert_eq!(chunked.promises.checksum, Some(Promise::Trailer(Algorithm::Crc32)));
        let sum = ("x-amz-checksum-crc32", "y/Q5Jg==");
        let found = parse(&[LENGTH, sum], Purpose::Document).unwrap().promises.checksum;
        assert!(matches!(found, Some(Promise::Header(Algorithm::Crc32, _))));
        let found = parse(&[LENGTH, sum], Purpose::Completion).unwrap().promises.checksum;
        assert_eq!(found, None, "of the object, not of the document");
    }

    #[test]
    fn declarations_that_mean_nothing_are_refused() {
        check(&[], "MissingContentLength");
        check(
            &[UNSIGNED, LENGTH, ("x-amz-trailer", "x-amz-checksum-crc32")],
            "MissingContentLength",
        );
        check(&[UNSIGNED, DECODED], "InvalidRequest");
        check(&[UNSIGNED, DECODED, ("x-amz-trailer", "x-amz-meta-a")], "InvalidRequest");
        check(&[LENGTH, ("x-amz-trailer", "x-amz-checksum-crc32")], "InvalidRequest");
        check(&[LENGTH, ("content-md5", "x")], "InvalidDigest");
        check(&[LENGTH, ("content-md5", "")], "InvalidDigest");
        check(&[LENGTH, (SHA, "00")], "InvalidArgument");
        check(&[LENGTH, ("x-amz-checksum-crc32", "x")], "InvalidRequest");
        check(&[LENGTH, ("x-amz-checksum-xyz", "x")], "InvalidRequest");
        let two = [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-checksum-crc32c", "4waSgw==")];
        check(&[LENGTH, two[0], two[1]], "InvalidRequest");
        check(&[LENGTH, two[0], two[0]], "InvalidRequest");
        check(&[LENGTH, two[0], ("x-amz-sdk-checksum-algorithm", "SHA1")], "InvalidRequest");
        check(&[LENGTH, ("x-amz-sdk-checksum-algorithm", "SHA1")], "InvalidRequest");
        for length in ["", "-1", "+5", "5x", "99999999999999999999"] {
            let trailer = ("x-amz-trailer", "x-amz-checksum-crc32");
            let decoded = ("x-amz-decoded-content-length", length);
            check(&[UNSIGNED, decoded, trailer], "InvalidArgument");
        }
    }
}
