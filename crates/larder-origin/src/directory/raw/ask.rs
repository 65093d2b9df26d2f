//! A raw request, as the operations look at it.

use super::super::checksum::{Algorithm, Checksum};
use super::super::put::Precondition;
use super::super::read::no_such_key;
use super::super::sidecar::StoredHeaders;
use super::super::{no_such_bucket, refused};
use super::answer::{invalid_argument, invalid_request, not_implemented};
use super::body::Body;
use super::tags;
use aws_smithy_types::base64;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use larder_model::{
    BucketName, ETag, ObjectKey, ObjectName, OriginError, OriginName, RawRequest, VersionId,
};

/// Of names and values of `x-amz-meta-*` together (S3 User Guide, "Working with object metadata").
const METADATA_BYTES: usize = 2048;

/// Headers of S3's own that a folder understands, or may pass over because what they ask for is so
/// in any case. Every other `x-amz-…` is refused: to pass over one could be to do something else
/// than was asked for.
const UNDERSTOOD: &[&str] = &[
    "x-amz-acl",
    "x-amz-bypass-governance-retention",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-mode",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-mp-object-size",
    "x-amz-object-attributes",
    "x-amz-object-ownership",
    "x-amz-optional-object-attributes",
    "x-amz-part-number-marker",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-trailer",
    "x-amz-user-agent",
    "x-amz-security-token",
];

/// A request and the names that it has.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) origin: OriginName,
    pub(super) method: Method,
    bucket: Option<BucketName>,
    key: Option<ObjectKey>,
    query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
}

impl Ask {
    pub(super) fn new(origin: OriginName, request: RawRequest) -> (Self, Body) {
        let RawRequest { method, bucket, key, query, headers, body } = request;
        (Self { origin, method, bucket, key, query, headers }, Body::of(body))
    }

    /// As an error names it.
    pub(super) fn resource(&self) -> String {
        match (&self.bucket, &self.key) {
            (None, _) => "/".to_owned(),
            (Some(bucket), None) => format!("/{bucket}"),
            (Some(bucket), Some(key)) => format!("/{bucket}/{key}"),
        }
    }

    /// How many of bucket and key there are.
    pub(super) fn depth(&self) -> usize {
        usize::from(self.bucket.is_some()) + usize::from(self.key.is_some())
    }

    pub(super) fn bucket(&self) -> Result<&BucketName, OriginError> {
        self.bucket.as_ref().ok_or_else(no_such_bucket)
    }

    pub(super) fn key(&self) -> Result<&ObjectKey, OriginError> {
        self.key.as_ref().ok_or_else(no_such_key)
    }

    /// The object that is named, with its `versionId`.
    pub(super) fn object(&self) -> Result<ObjectName, OriginError> {
        let id = self.param("versionId").map(VersionId::new).transpose();
        Ok(ObjectName {
            origin: self.origin.clone(),
            bucket: self.bucket()?.clone(),
            key: self.key()?.clone(),
            version_id: id.map_err(|_| invalid_argument("Invalid version id specified"))?,
        })
    }

    /// The names of the parameters.
    pub(super) fn params(&self) -> impl Iterator<Item = &str> {
        self.query.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.params().any(|other| other == name)
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a number; `absent` when it is missing or empty.
    pub(super) fn number(&self, name: &str, absent: u32) -> Result<u32, OriginError> {
        let Some(text) = self.param(name).filter(|text| !text.is_empty()) else {
            return Ok(absent);
        };
        let number = text.parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
        number.ok_or_else(|| {
            invalid_argument(format!("Provided {name} not an integer or within integer range"))
        })
    }

    /// A header's value; `None` when it is missing.
    pub(super) fn header(&self, name: &str) -> Result<Option<&str>, OriginError> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let text = value.to_str().map_err(|_| {
            invalid_argument(format!("The value of the header {name} is not visible ASCII"))
        })?;
        Ok(Some(text.trim()))
    }

    /// Refuses what no folder does, and what is said by a header that is not understood.
    pub(super) fn check_headers(&self) -> Result<(), OriginError> {
        for name in self.headers.keys().map(HeaderName::as_str) {
            let known = !name.starts_with("x-amz-")
                || name.starts_with("x-amz-meta-")
                || Algorithm::of_header(name).is_some()
                || UNDERSTOOD.contains(&name);
            if !known {
                return Err(not_implemented(name));
            }
        }
        match self.header("x-amz-storage-class")? {
            None | Some("" | "STANDARD") => {}
            Some(_) => {
                let message = "The storage class you specified is not valid";
                return Err(refused(400, "InvalidStorageClass", message));
            }
        }
        match self.header("x-amz-acl")? {
            None | Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => Ok(()),
            Some(_) => {
                let message = "The bucket does not allow ACLs";
                Err(refused(400, "AccessControlListNotSupported", message))
            }
        }
    }

    /// What of the headers belongs to the object to be, checked; without checksum.
    pub(super) fn stored_headers(&self) -> Result<StoredHeaders, OriginError> {
        let metadata = |(name, value): (&HeaderName, &HeaderValue)| {
            let name = name.as_str().strip_prefix("x-amz-meta-")?;
            Some(name.len() + value.len())
        };
        if self.headers.iter().filter_map(metadata).sum::<usize>() > METADATA_BYTES {
            let message = "Your metadata headers exceed the maximum allowed metadata size";
            return Err(refused(400, "MetadataTooLarge", message));
        }
        let tagging = self.header("x-amz-tagging")?.map(tags::of_header).transpose()?;
        let stored = StoredHeaders::of(&self.headers);
        Ok(stored.with_tagging(tagging.map(|tags| tags::to_header(&tags))))
    }

    /// The conditions on the object that would be replaced.
    pub(super) fn precondition(&self) -> Result<Precondition, OriginError> {
        let unless = self.header(IF_NONE_MATCH.as_str())?;
        match (unless, self.header(IF_MATCH.as_str())?) {
            (None, None) => Ok(Precondition::None),
            (Some("*"), None) => Ok(Precondition::Absent),
            (None, Some(tag)) if tag != "*" && !tag.contains(',') => self.matches(tag),
            (Some(_), _) => Err(not_implemented("if-none-match")),
            (None, Some(_)) => Err(not_implemented("if-match")),
        }
    }

    /// The condition on the object that would be removed.
    pub(super) fn delete_precondition(&self) -> Result<Precondition, OriginError> {
        match self.header(IF_MATCH.as_str())? {
            Some("*") => Ok(Precondition::Exists),
            _ => self.precondition(),
        }
    }

    fn matches(&self, tag: &str) -> Result<Precondition, OriginError> {
        let empty = || invalid_argument("If-Match is empty");
        ETag::new(tag).map(Precondition::Matches).ok_or_else(empty)
    }

    /// The checksum in the headers, if there is one, and no more than one.
    pub(super) fn header_checksum(&self) -> Result<Option<Checksum>, OriginError> {
        let mut found = None;
        for algorithm in Algorithm::ALL {
            let Some(text) = self.header(algorithm.header())? else { continue };
            if found.is_some() {
                let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types \
                    are not allowed.";
                return Err(invalid_request(message));
            }
            let wrong = || {
                let header = algorithm.header();
                invalid_request(format!("Value for {header} header is invalid."))
            };
            found = Some(Checksum::parse(algorithm, text).ok_or_else(wrong)?);
        }
        Ok(found)
    }

    pub(super) fn content_md5(&self) -> Result<Option<[u8; 16]>, OriginError> {
        let Some(text) = self.header("content-md5")? else { return Ok(None) };
        let md5 = base64::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        let invalid =
            || refused(400, "InvalidDigest", "The Content-MD5 you specified is not valid.");
        md5.map(Some).ok_or_else(invalid)
    }
}
