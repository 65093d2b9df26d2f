//! The two forms of a signature: Authorization header and presigned query.

use super::scope::{Credential, ScopeFault, parse_amz_date, seconds, show_time};
use super::sigv4::EMPTY_SHA256;
use super::{Guard, PRESIGN, Signed, unsupported};
use crate::fault::Fault;
use crate::query::Query;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// How far a request's clock may be off ours, in seconds.
const MAX_SKEW_S: i64 = 15 * 60;

/// The longest life of a presigned URL, in seconds: seven days.
const MAX_EXPIRES_S: i64 = 604_800;

const EXPECTED_CREDENTIAL: &str =
    "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".";

/// What may stand in `x-amz-content-sha256` besides a digest.
const PAYLOADS: [&str; 4] = [
    "UNSIGNED-PAYLOAD",
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
];

impl Guard {
    pub(super) fn check_header<'p>(
        &self,
        parts: &'p Parts,
        header: &'p HeaderValue,
    ) -> Result<Signed<'p>, Fault> {
        let header = header.to_str().map_err(|_| malformed("it is not ASCII"))?;
        let (algorithm, fields) = header.split_once(' ').unwrap_or((header, ""));
        if algorithm != ALGORITHM {
            return Err(if algorithm == "AWS" || algorithm.starts_with("AWS4-") {
                unsupported()
            } else {
                Fault::bad("InvalidArgument", "Unsupported Authorization Type")
                    .with("ArgumentName", "Authorization")
            });
        }
        let (credential, names, signature) = take_apart(fields)?;
        let credential =
            Credential::parse(credential).ok_or_else(|| malformed(EXPECTED_CREDENTIAL))?;
        let date = only(parts, &X_AMZ_DATE)?.ok_or_else(|| {
            Fault::denied("AWS authentication requires a valid Date or x-amz-date header")
        })?;
        let at = parse_amz_date(date).ok_or_else(|| {
            Fault::denied("AWS authentication requires a valid Date or x-amz-date header")
        })?;
        credential
            .check(&self.regions, date)
            .map_err(|fault| locate(malformed(&fault.to_string()), &fault))?;
        if !is_digest(signature) {
            return Err(malformed("the Signature is mal-formed."));
        }
        let now = seconds(self.clock.now());
        if now.abs_diff(at) > MAX_SKEW_S as u64 {
            return Err(skewed(date, now));
        }
        let payload = check_payload(only(parts, &X_AMZ_CONTENT_SHA256)?)?;
        check_signed(parts, names)?;
        check_empty(parts, payload)?;
        Ok(Signed { credential, names, signature, date, payload })
    }

    pub(super) fn check_presign(&self, parts: &Parts, query: &Query<'_>) -> Result<(), Fault> {
        let [algorithm, credential, date, expires, signed, signature] = presign_fields(query)?;
        if algorithm != ALGORITHM {
            return Err(bad_query("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let credential = Credential::parse(credential).ok_or_else(|| {
            bad_query(format!(
                "Error parsing the X-Amz-Credential parameter; {EXPECTED_CREDENTIAL}"
            ))
        })?;
        let at = parse_amz_date(date).ok_or_else(|| {
            bad_query("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
        })?;
        credential.check(&self.regions, date).map_err(|fault| {
            let text = format!("Error parsing the X-Amz-Credential parameter; {fault}");
            locate(bad_query(text), &fault)
        })?;
        let life = parse_expires(expires)?;
        if !is_digest(signature) {
            return Err(signature_mismatch());
        }
        let now = seconds(self.clock.now());
        if at - now > MAX_SKEW_S {
            return Err(Fault::denied("Request is not valid yet")
                .with("X-Amz-Date", date)
                .with("ServerTime", show_time(now)));
        }
        if now > at + life {
            return Err(Fault::denied("Request has expired")
                .with("X-Amz-Expires", expires)
                .with("Expires", show_time(at + life))
                .with("ServerTime", show_time(now)));
        }
        // Not needed here, but two of them, or nonsense, mean that somebody is trying.
        only(parts, &X_AMZ_DATE)?;
        if let Some(payload) = only(parts, &X_AMZ_CONTENT_SHA256)? {
            check_empty(parts, check_payload(Some(payload))?)?;
        }
        if query.has("X-Amz-Security-Token") {
            return Err(invalid_token());
        }
        check_signed(parts, signed)
    }
}

/// The three fields of an Authorization header, in the one order that s3s reads as well, so that
/// the two cannot understand it differently.
fn take_apart(fields: &str) -> Result<(&str, &str, &str), Fault> {
    let mut fields = fields.split(',').map(str::trim);
    let mut field = |name: &str| {
        let value = fields.next().and_then(|field| field.strip_prefix(name));
        let value = value.and_then(|value| value.strip_prefix('='));
        value.ok_or_else(|| malformed(&format!("missing {name}.")))
    };
    let taken = (field("Credential")?, field("SignedHeaders")?, field("Signature")?);
    match fields.next() {
        None => Ok(taken),
        Some(_) => Err(malformed("there is something behind the Signature.")),
    }
}

/// The six parameters in [`PRESIGN`]'s order, each there exactly once and spelled as S3 spells it.
fn presign_fields<'q>(query: &'q Query<'_>) -> Result<[&'q str; 6], Fault> {
    let mut fields = [None; 6];
    for (name, value) in query.iter() {
        let Some(at) = PRESIGN.iter().position(|field| field.eq_ignore_ascii_case(name)) else {
            continue;
        };
        let fresh = fields[at].is_none() && PRESIGN[at] == name;
        fields[at] = Some(value);
        if !fresh {
            return Err(incomplete_query());
        }
    }
    let mut values = [""; 6];
    for (value, field) in values.iter_mut().zip(fields) {
        *value = field.ok_or_else(incomplete_query)?;
    }
    Ok(values)
}

fn parse_expires(expires: &str) -> Result<i64, Fault> {
    let life: i64 = expires
        .parse()
        .ok()
        .filter(|_| !expires.starts_with('+'))
        .ok_or_else(|| bad_query("X-Amz-Expires should be a number"))?;
    if life < 1 {
        return Err(bad_query("X-Amz-Expires must be non-negative"));
    }
    if life > MAX_EXPIRES_S {
        return Err(bad_query(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires \
             must be less than 604800 seconds",
        ));
    }
    Ok(life)
}

/// `host` and every `x-amz-*` header must be signed. The list is compared byte for byte: s3s looks
/// names up in lower case and forgets those that it does not find.
fn check_signed(parts: &Parts, signed: &str) -> Result<(), Fault> {
    let is_signed = |name: &str| signed.split(';').any(|entry| entry == name);
    let mut unsigned = Vec::new();
    if !is_signed(HOST.as_str()) {
        unsigned.push(HOST.as_str());
    }
    for (name, value) in &parts.headers {
        let name = name.as_str();
        // The origins' own headers are passed on as well, so nobody may add one to a presigned URL.
        if !["x-amz-", "x-oss-", "x-bce-"].iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        // s3s leaves a value that is no UTF-8 out of the canonical request.
        if std::str::from_utf8(value.as_bytes()).is_err() {
            return Err(Fault::unparsable());
        }
        if !is_signed(name) && !unsigned.contains(&name) {
            unsigned.push(name);
        }
    }
    if !unsigned.is_empty() {
        let message = "There were headers present in the request which were not signed";
        return Err(Fault::denied(message).with("HeadersNotSigned", unsigned.join(", ")));
    }
    // HTTP/2 has the host elsewhere. s3s leaves a name out that it does not find, AWS does not.
    let told = |name: &str| {
        name.bytes().all(|b| !b.is_ascii_uppercase())
            && (parts.headers.contains_key(name) || name == HOST.as_str())
    };
    if !signed.split(';').all(told) {
        return Err(signature_mismatch());
    }
    if parts.headers.contains_key(X_AMZ_SECURITY_TOKEN) {
        return Err(invalid_token());
    }
    Ok(())
}

fn check_payload(payload: Option<&str>) -> Result<&str, Fault> {
    let Some(payload) = payload else {
        return Err(Fault::bad(
            "InvalidRequest",
            "Missing required header for this request: x-amz-content-sha256",
        ));
    };
    if is_digest(payload) || PAYLOADS.contains(&payload) {
        return Ok(payload);
    }
    Err(Fault::invalid_argument(
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid \
         sha256 value.",
        "x-amz-content-sha256",
        payload,
    ))
}

/// A read has no body, so its digest can be that of nothing only.
fn check_empty(parts: &Parts, payload: &str) -> Result<(), Fault> {
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    if !reads || !is_digest(payload) || payload == EMPTY_SHA256 {
        return Ok(());
    }
    Err(Fault::bad(
        "XAmzContentSHA256Mismatch",
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    )
    .with("ClientComputedContentSHA256", payload)
    .with("S3ComputedContentSHA256", EMPTY_SHA256))
}

/// 400 for a session token: the keys of the ring are long-lived and have none.
fn invalid_token() -> Fault {
    Fault::bad("InvalidToken", "The provided token is malformed or otherwise invalid.")
}

/// The value of a header that may be there once.
fn only<'p>(parts: &'p Parts, name: &HeaderName) -> Result<Option<&'p str>, Fault> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Fault::unparsable()),
        (Some(_), Some(_)) => {
            Err(Fault::bad("InvalidRequest", format!("The header {name} may be given only once")))
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn malformed(what: &str) -> Fault {
    Fault::bad(
        "AuthorizationHeaderMalformed",
        format!("The authorization header is malformed; {what}"),
    )
}

fn bad_query(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::bad("AuthorizationQueryParametersError", message)
}

fn incomplete_query() -> Fault {
    bad_query(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
    )
}

/// Clients sign again for the region that they are told.
fn locate(fault: Fault, scope: &ScopeFault<'_>) -> Fault {
    match scope {
        ScopeFault::Region { expected, .. } => fault.with("Region", *expected),
        _ => fault,
    }
}

fn skewed(date: &str, now: i64) -> Fault {
    Fault::new(
        StatusCode::FORBIDDEN,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    )
    .with("RequestTime", date)
    .with("ServerTime", show_time(now))
    .with("MaxAllowedSkewMilliseconds", (MAX_SKEW_S * 1000).to_string())
}

/// 403 for a signature that is not the one we calculate.
pub(crate) fn signature_mismatch() -> Fault {
    Fault::new(
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your \
         key and signing method.",
    )
}
