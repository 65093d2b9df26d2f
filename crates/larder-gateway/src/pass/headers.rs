//! Which headers of a request go on to the origin, and which of its answer come back.
//!
//! Everything that is not named here stays behind: host, signature, date, connection headers. A header
//! that S3 may give a meaning and that nobody here knows is refused on whatever changes something, since
//! leaving it out might change what the request means.

use crate::fault::Fault;
use crate::operation::{Class, Row, Set};
use crate::upload::is_checksum;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_TYPE, DATE, EXPIRES, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE, SERVER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Of every request.
const COMMON: [&str; 3] = ["content-type", "x-amz-expected-bucket-owner", "x-amz-request-payer"];

/// Of every body whose digests they are.
const DIGESTS: [&str; 2] = ["content-md5", "x-amz-sdk-checksum-algorithm"];

const READ: [HeaderName; 6] =
    [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE];

const READ_AMZ: [&str; 6] = [
    "x-amz-checksum-mode",
    "x-amz-max-parts",
    "x-amz-object-attributes",
    "x-amz-optional-object-attributes",
    "x-amz-part-number-marker",
    "x-oss-range-behavior",
];

/// Keys that only the client knows.
const SSE_CUSTOMER: &str = "x-amz-server-side-encryption-customer-";

const OBJECT: [HeaderName; 7] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    EXPIRES,
    IF_MATCH,
    IF_NONE_MATCH,
];

const OBJECT_AMZ: [&str; 18] = [
    "x-amz-acl",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-type",
    "x-amz-if-match-initiated-time",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
    "x-bce-acl",
    "x-bce-storage-class",
    "x-oss-expires",
    "x-oss-forbid-overwrite",
    "x-oss-object-acl",
    "x-oss-storage-class",
    "x-oss-tagging",
];

const OBJECT_PREFIXES: [&str; 7] = [
    "x-amz-grant-",
    "x-amz-meta-",
    "x-amz-server-side-encryption",
    "x-bce-meta-",
    "x-bce-server-side-encryption",
    "x-oss-meta-",
    "x-oss-server-side-",
];

const COPY_AMZ: [&str; 8] = [
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-metadata-directive",
    "x-amz-source-expected-bucket-owner",
    "x-amz-tagging-directive",
];

const COPY_PREFIX: &str = "x-amz-copy-source-server-side-encryption-customer-";

const COMPLETION_AMZ: [&str; 2] = ["x-amz-checksum-type", "x-amz-mp-object-size"];

const DELETION_AMZ: [&str; 6] = [
    "x-amz-bypass-governance-retention",
    "x-amz-delete-if-unmodified-since",
    "x-amz-if-match-initiated-time",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-mfa",
];

const SETTING_AMZ: [&str; 12] = [
    "x-amz-acl",
    "x-amz-bucket-namespace",
    "x-amz-bucket-object-lock-enabled",
    "x-amz-bucket-object-lock-token",
    "x-amz-confirm-remove-self-bucket-access",
    "x-amz-mfa",
    "x-amz-object-ownership",
    "x-amz-skip-destination-validation",
    "x-amz-transition-default-minimum-object-size",
    "x-oss-acl",
    "x-oss-forbid-overwrite",
    "x-oss-storage-class",
];

const SETTING_PREFIX: &str = "x-amz-grant-";

/// Headers that S3 knows and that are dealt with here, or mean nothing to an origin that is asked by
/// us: they are left out in silence.
const OURS: [&str; 12] = [
    "x-amz-checksum-algorithm",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-id-2",
    "x-amz-request-id",
    "x-amz-security-token",
    "x-amz-storage-class",
    "x-amz-te",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// The headers of `from` that go on with an operation.
///
/// # Errors
///
/// 501 for one that cannot be left out and is not known.
pub(super) fn choose(from: &HeaderMap, row: &Row) -> Result<HeaderMap, Fault> {
    let mut chosen = HeaderMap::with_capacity(from.keys_len());
    let brings = row.brings != crate::operation::Brings::Nothing;
    for (name, value) in from {
        let text = name.as_str();
        let digest = brings && (DIGESTS.contains(&text) || is_checksum(name));
        if COMMON.contains(&text) || digest || row.headers.iter().any(|set| set.has(name)) {
            chosen.append(name.clone(), value.clone());
        } else if row.class != Class::Read && row.class != Class::Cached && is_foreign(name) {
            let fault = Fault::not_implemented().with("Header", text);
            return Err(fault);
        }
    }
    Ok(chosen)
}

impl Set {
    fn has(self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        match self {
            Self::Read => {
                READ.contains(name) || READ_AMZ.contains(&text) || text.starts_with(SSE_CUSTOMER)
            }
            Self::Object => {
                OBJECT.contains(name) || OBJECT_AMZ.contains(&text) || begins(&OBJECT_PREFIXES)
            }
            Self::Copy => COPY_AMZ.contains(&text) || text.starts_with(COPY_PREFIX),
            Self::Part => text.starts_with(SSE_CUSTOMER),
            Self::Completion => {
                [IF_MATCH, IF_NONE_MATCH].contains(name)
                    || COMPLETION_AMZ.contains(&text)
                    || text.starts_with(SSE_CUSTOMER)
            }
            Self::Deletion => name == IF_MATCH || DELETION_AMZ.contains(&text),
            Self::Setting => SETTING_AMZ.contains(&text) || text.starts_with(SETTING_PREFIX),
        }
    }

    const ALL: [Self; 7] = [
        Self::Read,
        Self::Object,
        Self::Copy,
        Self::Part,
        Self::Completion,
        Self::Deletion,
        Self::Setting,
    ];
}

/// Whether a header belongs to S3, OSS or BOS and no operation here knows it.
fn is_foreign(name: &HeaderName) -> bool {
    let text = name.as_str();
    let theirs = ["x-amz-", "x-oss-", "x-bce-"].iter().any(|prefix| text.starts_with(prefix));
    let known = COMMON.contains(&text)
        || DIGESTS.contains(&text)
        || OURS.contains(&text)
        || is_checksum(name)
        || Set::ALL.iter().any(|set| set.has(name));
    theirs && !known
}

/// Takes `aws-chunked` out of `Content-Encoding`: it was the framing's, not the object's.
pub(super) fn strip_aws_chunked(headers: &mut HeaderMap) {
    let values: Vec<HeaderValue> = headers.get_all(CONTENT_ENCODING).iter().cloned().collect();
    let chunked =
        |text: &str| text.split(',').any(|c| c.trim().eq_ignore_ascii_case("aws-chunked"));
    if !values.iter().any(|value| value.to_str().is_ok_and(chunked)) {
        return;
    }
    headers.remove(CONTENT_ENCODING);
    let kept: Vec<&str> = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    if let Ok(value) = HeaderValue::try_from(kept.join(","))
        && !value.is_empty()
    {
        headers.insert(CONTENT_ENCODING, value);
    }
}

/// Takes out of an origin's answer what belongs to its connection.
pub(super) fn strip_answer(headers: &mut HeaderMap, status: StatusCode) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, DATE, SERVER] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "x-amz-request-id", "x-amz-id-2"] {
        headers.remove(name);
    }
    if status == StatusCode::NO_CONTENT {
        headers.remove(http::header::CONTENT_LENGTH);
    }
}

/// Whether a GET or HEAD of an object must be asked of the origin as it is: what it asks for is not
/// cached, or who asks matters to the origin.
pub(crate) fn must_pass(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let text = name.as_str();
        text.starts_with(SSE_CUSTOMER)
            || matches!(text, "x-amz-expected-bucket-owner" | "x-amz-request-payer")
    })
}

/// The content type, for bodies that are looked into.
pub(super) fn is_xml(headers: &HeaderMap) -> bool {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    text.is_some_and(|text| text.contains("xml"))
}

#[cfg(test)]
mod tests {
    use super::{choose, must_pass, strip_aws_chunked};
    use crate::operation::{Row, TABLE};
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn headers(names: &[&'static str]) -> HeaderMap {
        let pairs =
            names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("v")));
        pairs.collect()
    }

    fn row(name: &str) -> &'static Row {
        TABLE.iter().find(|row| row.name == name).unwrap()
    }

    fn check(name: &str, sent: &[&'static str], expected: Option<&[&str]>) {
        let found = choose(&headers(sent), row(name)).ok();
        let found = found.map(|found| {
            let mut names: Vec<String> = found.keys().map(|n| n.as_str().to_owned()).collect();
            names.sort();
            names
        });
        assert_eq!(found, expected.map(|e| e.iter().map(|n| (*n).to_owned()).collect()), "{name}");
    }

    #[test]
    fn only_what_an_operation_knows_goes_on() {
        let ours = ["host", "authorization", "date", "connection", "expect", "x-larder-job"];
        check("PutObject", &ours, Some(&[]));
        check("PutObject", &["x-amz-meta-a", "cookie"], Some(&["x-amz-meta-a"]));
        check("PutObject", &["content-md5", "x-amz-mfa"], Some(&["content-md5"]));
        check("DeleteObject", &["x-amz-acl", "x-amz-mfa"], Some(&["x-amz-mfa"]));
        check("GetObject", &["range", "x-amz-acl"], Some(&["range"]));
        let source = ["x-amz-copy-source", "x-amz-copy-source-if-match"];
        check("CopyObject", &source, Some(&["x-amz-copy-source-if-match"]));
        check("PutObject", &source, Some(&[]));
        check("PutObject", &["x-amz-checksum-crc32"], Some(&["x-amz-checksum-crc32"]));
        check("DeleteObject", &["x-amz-checksum-crc32"], Some(&[]));
        check("PutObjectTagging", &["x-amz-meta-a"], Some(&[]));
    }

    #[test]
    fn what_nobody_knows_is_refused_on_writes_and_left_out_of_reads() {
        for name in ["x-amz-rename-source", "x-oss-copy-source", "x-bce-copy-source", "x-amz-new"] {
            check("PutObject", &[name], None);
            check("DeleteObject", &[name], None);
            check("PutBucketPolicy", &[name], None);
            check("GetObjectAcl", &[name], Some(&[]));
        }
    }

    #[test]
    fn the_framing_is_no_encoding_of_the_object() {
        let check = |values: &[&'static str], expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("content-encoding", HeaderValue::from_static(value));
            }
            strip_aws_chunked(&mut headers);
            assert_eq!(headers.get("content-encoding").map(|v| v.to_str().unwrap()), expected);
        };
        check(&["aws-chunked"], None);
        check(&["aws-chunked,gzip"], Some("gzip"));
        check(&["gzip, AWS-Chunked"], Some("gzip"));
        check(&["aws-chunked", "gzip"], Some("gzip"));
        check(&["gzip"], Some("gzip"));
        check(&[""], Some(""));
    }

    #[test]
    fn keys_of_clients_and_asked_for_owners_go_to_the_origin() {
        assert!(must_pass(&headers(&["x-amz-server-side-encryption-customer-key"])));
        assert!(must_pass(&headers(&["x-amz-expected-bucket-owner"])));
        assert!(!must_pass(&headers(&["x-amz-checksum-mode", "range"])));
    }
}
