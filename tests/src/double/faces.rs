//! Where OSS and BOS differ from S3 and from each other, as data and small rules. Rows marked
//! [D] are the vendor's documents, [R] a report from the field, [G] a guess on the strict side.

use super::{Asked, Refusal, digest};
use crate::sigv4::{self, CHUNKED, Proof, UNSIGNED};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use sha2::{Digest as _, Sha256};

/// Which product a double is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// Alibaba Cloud OSS.
    Oss,
    /// Baidu BOS.
    Bos,
}

/// `x-amz-*` headers that both know; `x-amz-meta-*` besides. All others are refused.
const HEADERS: [&str; 13] = [
    "x-amz-acl",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-metadata-directive",
    "x-amz-security-token",
    "x-amz-storage-class",
];

/// Query parameters that both know beside `X-Amz-*` of presigned requests and `response-*`.
const PARAMETERS: [&str; 17] = [
    "acl",
    "continuation-token",
    "delete",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "lifecycle",
    "list-type",
    "location",
    "marker",
    "max-keys",
    "partNumber",
    "prefix",
    "start-after",
    "uploadId",
    "uploads",
    // The SDKs tell the operation's name so; S3 and its like take no notice.
    "x-id",
];

impl Product {
    /// The value of `kind` in the configuration.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Oss => "oss",
            Self::Bos => "bos",
        }
    }

    /// The region that its signatures must name, bare.
    #[must_use]
    pub fn region(self) -> &'static str {
        match self {
            Self::Oss => "cn-hangzhou",
            Self::Bos => "bj",
        }
    }

    pub(super) fn domain(self) -> &'static str {
        match self {
            Self::Oss => "oss.localhost",
            Self::Bos => "bos.localhost",
        }
    }

    /// Bucket and key, from host and path. OSS takes no bucket in the path [D]; of BOS, the
    /// documents contradict one another, and the double takes both.
    pub(super) fn locate(self, head: &Parts) -> Result<(Option<String>, Option<String>), Refusal> {
        let host = head.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        let path = head.uri.path();
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if let Some(bucket) = name.strip_suffix(&format!(".{}", self.domain())) {
            return Ok((some(bucket), some(path.trim_start_matches_one('/'))));
        }
        if self == Self::Oss && (path != "/" || name != self.domain()) {
            let told = "The bucket you are attempting to access must be addressed using OSS third \
                        level domain.";
            return Err(Refusal::new(403, "SecondLevelDomainForbidden", told).ec("0003-00000201"));
        }
        let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        Ok((some(bucket), some(key)))
    }

    /// The body without its framing, checked against what was declared of it. Only whole signed
    /// bodies, unsigned ones and signed chunks are known; trailers are refused [D].
    pub(super) fn open(
        self,
        headers: &HeaderMap,
        proof: &Proof,
        body: Bytes,
    ) -> Result<Bytes, Refusal> {
        let framed = headers
            .get_all("content-encoding")
            .iter()
            .any(|value| value.to_str().is_ok_and(|value| value.contains("aws-chunked")));
        let trailers = headers.contains_key("x-amz-trailer");
        let body = match proof.payload.as_str() {
            CHUNKED if !trailers => {
                let declared = headers.get("x-amz-decoded-content-length");
                let declared = declared.and_then(|value| value.to_str().ok()?.parse().ok());
                Bytes::from(sigv4::unchunk(&body, proof, declared)?)
            }
            UNSIGNED if !framed && !trailers => body,
            digest if digest.len() == 64 && !framed && !trailers => {
                if hex::encode(Sha256::digest(&body)) != digest {
                    let told = "The provided 'x-amz-content-sha256' header does not match what was \
                                computed.";
                    return Err(Refusal::new(400, "XAmzContentSHA256Mismatch", told));
                }
                body
            }
            _ => {
                let told = "aws-chunked encoding is not supported with the specified \
                            x-amz-content-sha256 value.";
                return Err(Refusal::new(400, "InvalidArgument", told).ec("0017-00000804"));
            }
        };
        match headers.get("content-md5") {
            Some(told) if told.as_bytes() != digest::content_md5(&body).as_bytes() => {
                let message = "The Content-MD5 you specified did not match what we received.";
                Err(Refusal::new(400, "InvalidDigest", message))
            }
            _ => Ok(body),
        }
    }

    /// An error unless the product knows the operation and every header and parameter of it.
    pub(super) fn allow(self, asked: &Asked) -> Result<(), Refusal> {
        let missing = |what: String| {
            let told = "A header or a query you provided implies functionality that is not \
                        implemented.";
            Err(Refusal::new(501, "NotImplemented", told).detail("Header", &what))
        };
        let names = asked.head.headers.keys().map(http::HeaderName::as_str);
        for name in names.filter(|name| name.starts_with("x-amz-")) {
            if !HEADERS.contains(&name) && !name.starts_with("x-amz-meta-") {
                return missing(name.to_owned());
            }
        }
        for (name, _) in &asked.query {
            let known = name.starts_with("X-Amz-") || name.starts_with("response-");
            if !known && !PARAMETERS.contains(&name.as_str()) {
                return missing(format!("?{name}"));
            }
        }
        // ListMultipartUploads is not in OSS's S3 surface [D].
        if self == Self::Oss && asked.has("uploads") && asked.head.method == Method::GET {
            return missing("?uploads".to_owned());
        }
        // OSS deletes many objects only with a Content-MD5 [R].
        let digest = asked.head.headers.contains_key("content-md5");
        if self == Self::Oss && asked.has("delete") && !digest {
            let told = "Missing Some Required Arguments.";
            let refusal = Refusal::new(400, "MissingArgument", told).ec("0016-00000606");
            return Err(refusal.detail("ArgumentName", "Content-MD5"));
        }
        Ok(())
    }

    /// The names of exchange and server that every answer carries.
    pub(super) fn sign_off(self, headers: &mut HeaderMap, exchange: u64) -> anyhow::Result<()> {
        let put = |headers: &mut HeaderMap, name: &'static str, value: String| {
            HeaderValue::try_from(value).map(|value| headers.insert(name, value).is_some())
        };
        match self {
            Self::Oss => {
                put(headers, "x-oss-request-id", format!("{exchange:024X}"))?;
                put(headers, "x-oss-server-time", (exchange % 50).to_string())?;
                put(headers, "server", "AliyunOSS".to_owned())?;
            }
            Self::Bos => {
                put(
                    headers,
                    "x-bce-request-id",
                    format!("00000000-0000-4000-8000-{exchange:012x}"),
                )?;
                let trace = digest::base64(format!("debug of exchange {exchange}").as_bytes());
                put(headers, "x-bce-debug-id", trace)?;
                put(headers, "server", "BceBos".to_owned())?;
            }
        }
        Ok(())
    }

    /// What the product's errors hold beside code and message.
    pub(super) fn finish_error(self, xml: String, ec: &str) -> String {
        match self {
            Self::Oss => {
                let host = match xml.contains("<HostId>") {
                    true => String::new(),
                    false => format!("<HostId>{}</HostId>", self.domain()),
                };
                let more = format!("{host}<EC>{ec}</EC></Error>");
                xml.replace("</Error>", &more)
            }
            Self::Bos => xml,
        }
    }

    /// Headers of moto's answers that the product does not send: version ids and delete markers
    /// [D], grants, and checksums other than its own.
    pub(super) fn hides(self, name: &str) -> bool {
        let of_s3 = ["x-amz-version-id", "x-amz-delete-marker", "x-amz-copy-source-version-id"];
        let checksum = name.starts_with("x-amz-checksum-") || name.starts_with("x-amzn-");
        let sealed = name.starts_with("x-amz-server-side-encryption");
        let exchange = name == "x-amz-request-id" || name == "x-amz-id-2";
        of_s3.contains(&name) || checksum || sealed || (self == Self::Oss && exchange)
    }
}

/// `trim_start_matches` that takes one character away at most: a key may begin with a slash.
trait TrimOne {
    fn trim_start_matches_one(&self, first: char) -> &str;
}

impl TrimOne for str {
    fn trim_start_matches_one(&self, first: char) -> &str {
        self.strip_prefix(first).unwrap_or(self)
    }
}
