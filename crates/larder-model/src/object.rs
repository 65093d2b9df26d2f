//! Objects and their versions: what a response is pinned to, and what a cached block belongs to.
//!
//! Invariant: identity is the version id where the origin has one, else (ETag byte for byte, size).
//! Last-Modified is not part of it: its precision differs between LIST and HEAD.

use crate::{BlockLayout, BucketName, DatasetName, ObjectDigest, ObjectKey, OriginName, VersionId};
use http::HeaderMap;
use http::header::LAST_MODIFIED;
use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// An entity tag exactly as the origin sent it: quotes, case and `W/` included.
///
/// Two tags are equal when they are byte-identical. A multipart ETag is not an MD5, and OSS sends
/// upper case: never derive one, always replay.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ETag(Arc<str>);

impl ETag {
    /// Takes the header's value; `None` when it is empty or not visible ASCII.
    #[must_use]
    pub fn new(value: &str) -> Option<Self> {
        let printable = value.bytes().all(|b| (0x20..0x7f).contains(&b));
        (!value.is_empty() && printable).then(|| Self(value.into()))
    }

    /// The header's value, as it came.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag without quotes, for comparing with a client's condition, which may leave them out.
    #[must_use]
    pub fn opaque(&self) -> &str {
        self.0.trim_start_matches("W/").trim_matches('"')
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which object a request means, at which origin. A `versionId` in the request is part of the name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// The origin that holds it.
    pub origin: OriginName,
    /// The bucket's name at the origin.
    pub bucket: BucketName,
    /// The key at the origin.
    pub key: ObjectKey,
    /// The version that the client named, if it did.
    pub version_id: Option<VersionId>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.origin, self.bucket, self.key.as_str().escape_debug())?;
        match &self.version_id {
            Some(id) => write!(f, "?versionId={id}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What tells one state of an object from every other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// The origin versions the bucket: an id names bytes that never change.
    Id(VersionId),
    /// The tag byte for byte, and the size.
    Content {
        /// The tag as the origin sent it.
        etag: ETag,
        /// Bytes.
        size: u64,
    },
}

/// What the origin said of an object: its identity, its size and the headers to replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMeta {
    /// The object's size in bytes.
    pub size: u64,
    /// The tag, if the origin sent one.
    pub etag: Option<ETag>,
    /// The version id that the origin sent, if any.
    pub version_id: Option<VersionId>,
    /// What a client is to see of the origin's answer: content and cache headers, Last-Modified,
    /// ETag, `x-amz-*`, `x-oss-*` and `x-bce-*`. Hop-by-hop headers, Content-Length,
    /// Content-Range, Date and request ids are not in it.
    pub headers: HeaderMap,
}

impl ObjectMeta {
    /// The identity of this state of the object, or `None` when the origin gave nothing that a
    /// cache could rely on: then the object passes through uncached.
    ///
    /// A weak tag does not promise equal bytes (RFC 9110 §8.8.1) and is not usable. The version
    /// id `null` can be overwritten, so it is no identity.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        if let Some(id) = self.version_id.as_ref().filter(|id| !id.is_null()) {
            return Some(Version::Id(id.clone()));
        }
        let etag = self.etag.as_ref().filter(|tag| !tag.as_str().starts_with("W/"))?;
        Some(Version::Content { etag: etag.clone(), size: self.size })
    }

    /// The Last-Modified header in seconds since 1970; `None` without one, or when it is no HTTP
    /// date of 1970 or later.
    #[must_use]
    pub fn last_modified(&self) -> Option<i64> {
        let header = self.headers.get(LAST_MODIFIED)?.to_str().ok()?;
        let age = httpdate::parse_http_date(header).ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(age.as_secs()).ok()
    }
}

/// One object at one version: everything that a response serves comes from here.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The object's name.
    pub name: ObjectName,
    /// Which state of it.
    pub version: Version,
    /// What the origin said of that state.
    pub meta: Arc<ObjectMeta>,
    /// The length of its blocks in bytes.
    pub block_bytes: u32,
    /// The digest from which the keys of its blocks derive.
    pub digest: ObjectDigest,
}

impl Pinned {
    /// Pins `meta` as the state of `name`, for blocks of `block_bytes` of `dataset`. `None` when the
    /// origin gave no usable version.
    #[must_use]
    pub fn new(
        dataset: &DatasetName,
        name: ObjectName,
        meta: Arc<ObjectMeta>,
        block_bytes: u32,
    ) -> Option<Self> {
        let version = meta.version()?;
        let digest = ObjectDigest::new(dataset, &name, &version, meta.size, block_bytes);
        Some(Self { name, version, meta, block_bytes, digest })
    }

    /// The object's size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// How it is cut into blocks.
    #[must_use]
    pub fn layout(&self) -> BlockLayout {
        BlockLayout::new(self.meta.size, self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{ETag, ObjectMeta, Version};
    use crate::VersionId;
    use http::HeaderMap;

    fn meta(etag: &str, version_id: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            size: 7,
            etag: ETag::new(etag),
            version_id: version_id.map(|id| VersionId::new(id).unwrap()),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn a_version_id_is_the_identity_where_there_is_one() {
        assert!(matches!(meta("\"a\"", Some("v1")).version(), Some(Version::Id(_))));
    }

    #[test]
    fn the_null_version_falls_back_to_tag_and_size() {
        let version = meta("\"a\"", Some("null")).version();
        assert!(matches!(version, Some(Version::Content { size: 7, .. })));
    }

    #[test]
    fn a_weak_or_missing_tag_is_no_version() {
        assert_eq!(meta("W/\"a\"", None).version(), None);
        assert_eq!(meta("", None).version(), None);
    }

    #[test]
    fn tags_of_other_case_are_other_versions() {
        assert_ne!(meta("\"AB\"", None).version(), meta("\"ab\"", None).version());
    }
}
