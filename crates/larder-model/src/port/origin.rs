//! The origin port: an object store, reduced to what the engine asks of it.

use crate::{
    BucketName, ByteRange, ETag, ObjectKey, ObjectMeta, ObjectName, OriginName, Timestamp,
};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// An origin's error answer, kept so that the client sees what the origin said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The HTTP status.
    pub status: u16,
    /// The S3 code, such as `NoSuchKey`; empty when the body had none (as for HEAD).
    pub code: String,
    /// The S3 message.
    pub message: String,
    /// Headers to replay, chosen as for [`ObjectMeta::headers`].
    pub headers: HeaderMap,
    /// The body as it came, up to 64 KiB.
    pub body: Bytes,
}

/// Why the origin did not do what it was asked. Variants are named by what the caller must do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OriginError {
    /// No such object, version or bucket: forget what was known, replay the answer.
    #[error("not found at the origin: {} {}", .0.status, .0.code)]
    NotFound(ErrorReply),
    /// The version that was asked for is not the current one any more: pin again.
    #[error("the object changed at the origin")]
    VersionChanged,
    /// No byte of the object lies in the range; the size, where the origin told it.
    #[error("the range lies outside the object")]
    RangeNotSatisfiable {
        /// The object's size from Content-Range, if it was there.
        size: Option<u64>,
        /// What the origin said.
        reply: ErrorReply,
    },
    /// The origin, or our own limit towards it, is busy: 503 with Retry-After.
    #[error("origin {origin} is busy: {reason}")]
    Busy {
        /// The origin.
        origin: OriginName,
        /// What was met: throttling, a limit of ours.
        reason: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// No answer, or a broken one, after all retries: 503 with Retry-After.
    #[error("origin {origin} cannot be reached: {reason}")]
    Unreachable {
        /// The origin.
        origin: OriginName,
        /// What was tried and failed. Holds no secret.
        reason: String,
    },
    /// Any other answer: replay it.
    #[error("the origin answered {} {}", .0.status, .0.code)]
    Refused(ErrorReply),
    /// The stream of a [`RawBody`] ended in an error, and the request was broken off before its last
    /// byte. Whoever made the stream knows why.
    #[error("the request's body broke off")]
    BodyBroken,
}

/// A request for an object's state.
#[derive(Clone, Debug)]
pub struct HeadRequest {
    /// Which object.
    pub name: ObjectName,
    /// `partNumber`, replayed to the origin.
    pub part_number: Option<u32>,
    /// Whether to ask for stored checksums (`x-amz-checksum-mode`), where the dialect knows them.
    pub checksums: bool,
}

/// A request for an object's bytes.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Which object.
    pub name: ObjectName,
    /// Which bytes; the whole object without. The origin clips the range to the object's end.
    pub range: Option<ByteRange>,
    /// The version that the bytes must be of. Sent as If-Match where the origin honours it, and
    /// compared with the answer's ETag always: anything else is [`OriginError::VersionChanged`].
    pub if_match: Option<ETag>,
    /// `partNumber`, replayed to the origin; never together with `range`.
    pub part_number: Option<u32>,
    /// Whether to ask for stored checksums, as in [`HeadRequest`].
    pub checksums: bool,
}

/// An object's bytes as they come.
pub struct Fetched {
    /// What the origin said of the object. `size` is the whole object's.
    pub meta: ObjectMeta,
    /// The bytes that the body holds; `None` for the body of an empty object.
    pub range: Option<ByteRange>,
    /// The body. It either yields exactly the bytes of `range` and ends, or yields an error: a
    /// broken transfer is resumed inside, with Range and If-Match, before it is given up.
    /// Nothing is fetched that is not polled for, bar socket buffers.
    pub body: BoxStream<'static, Result<Bytes, OriginError>>,
}

/// Which of S3's two list requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListDialect {
    /// ListObjects: `marker` is a key.
    V1,
    /// ListObjectsV2: `token` is opaque.
    V2,
}

/// A request for one page of keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ListRequest {
    /// The bucket at the origin.
    pub bucket: BucketName,
    /// Which request to make.
    pub dialect: ListDialect,
    /// Only keys that begin with this; may be empty.
    pub prefix: String,
    /// Keys that share a part up to this are rolled up; none without.
    pub delimiter: Option<String>,
    /// 0 to 1,000.
    pub max_keys: u32,
    /// V1: only keys behind this one.
    pub marker: Option<String>,
    /// V2: where the last page ended.
    pub token: Option<String>,
    /// V2: only keys behind this one.
    pub start_after: Option<String>,
    /// V2: whether to tell owners. V1 always does.
    pub fetch_owner: bool,
}

/// Who owns an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Canonical id.
    pub id: Option<String>,
    /// Display name.
    pub display_name: Option<String>,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its size in bytes.
    pub size: u64,
    /// Its tag, if told.
    pub etag: Option<ETag>,
    /// When it was last written.
    pub last_modified: Option<Timestamp>,
    /// Its storage class, if told.
    pub storage_class: Option<String>,
    /// Its owner, if told.
    pub owner: Option<Owner>,
    /// The algorithms of its stored checksums.
    pub checksum_algorithms: Vec<String>,
    /// `FULL_OBJECT` or `COMPOSITE`.
    pub checksum_type: Option<String>,
}

/// One page of keys. Keys and prefixes are plain, never URL-encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects, in the origin's order.
    pub objects: Vec<ListedObject>,
    /// The rolled-up prefixes, in the origin's order.
    pub common_prefixes: Vec<String>,
    /// Whether there is more.
    pub truncated: bool,
    /// V1: the marker for the next page, where the origin tells one.
    pub next_marker: Option<String>,
    /// V2: the token for the next page.
    pub next_token: Option<String>,
}

/// One bucket of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEntry {
    /// Its name.
    pub name: BucketName,
    /// When it was made, if told.
    pub created: Option<Timestamp>,
}

/// A request to be passed on as it is, but for the signature, which becomes ours. Whoever makes one
/// has chosen its headers; the adapter adds host, date, signature and framing.
pub struct RawRequest {
    /// The method.
    pub method: Method,
    /// The bucket at the origin; `None` for the service.
    pub bucket: Option<BucketName>,
    /// The key at the origin; `None` for the bucket.
    pub key: Option<ObjectKey>,
    /// Names and values, decoded, in the client's order. A parameter whose value is empty goes out
    /// as its name alone.
    pub query: Vec<(String, String)>,
    /// Headers to pass on.
    pub headers: HeaderMap,
    /// The body.
    pub body: RawBody,
}

/// The body of a [`RawRequest`], decoded: no aws-chunked framing is left.
pub enum RawBody {
    /// None; no Content-Length goes out with GET, HEAD and DELETE, and one of 0 with PUT and POST.
    Empty,
    /// All of it. It may be sent again.
    Whole(Bytes),
    /// Piece by piece; sent once.
    Stream {
        /// How many bytes will come.
        len: u64,
        /// The SHA-256 that the client declared and the stream checks, in lower-case hexadecimal.
        sha256: Option<String>,
        /// A checksum that is known when the stream has ended.
        trailer: Option<Trailer>,
        /// The bytes. The last of them come only once all have been verified, so that a body that
        /// fails its checks leaves the origin with an incomplete request.
        bytes: BoxStream<'static, Result<Bytes, BodyBroken>>,
    },
}

/// A checksum header that the client sent behind the body, and the stream has verified.
#[derive(Clone, Debug)]
pub struct Trailer {
    /// `x-amz-checksum-…`
    pub name: HeaderName,
    /// Filled before the stream ends.
    pub value: Arc<OnceLock<HeaderValue>>,
}

/// A body that will not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body broke off or failed its checks")]
pub struct BodyBroken;

impl fmt::Debug for RawBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Stream { len, .. } => write!(f, "Stream({len} bytes)"),
        }
    }
}

/// The origin's answer to a [`RawRequest`], whatever its status.
pub struct RawAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Every header but those of the connection (RFC 9110 §7.6.1), Date and Server. Content-Length
    /// is kept. What names one exchange (`x-amz-request-id` and its like) is left out.
    pub headers: HeaderMap,
    /// The body.
    pub body: BoxStream<'static, Result<Bytes, OriginError>>,
}

/// An object store. Retries, limits and time-outs are inside; what comes out is final.
#[async_trait::async_trait]
pub trait Origin: Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &OriginName;

    /// The object's state.
    async fn head(&self, request: HeadRequest) -> Result<ObjectMeta, OriginError>;

    /// The object's bytes, and its state.
    async fn fetch(&self, request: FetchRequest) -> Result<Fetched, OriginError>;

    /// One page of keys.
    async fn list(&self, request: ListRequest) -> Result<ListPage, OriginError>;

    /// The buckets that the origin's credentials may list.
    async fn list_buckets(&self) -> Result<Vec<BucketEntry>, OriginError>;

    /// Whether the bucket is there; its headers (such as `x-amz-bucket-region`).
    async fn head_bucket(&self, bucket: &BucketName) -> Result<HeaderMap, OriginError>;

    /// The bucket's location constraint; empty for the default region.
    async fn bucket_location(&self, bucket: &BucketName) -> Result<String, OriginError>;

    /// Passes a request on, and its answer back. Sent again after a failure only where that cannot
    /// do twice what was asked once: a body that can be sent again, and a method that is idempotent
    /// or a connection that was never made.
    ///
    /// Dropping the call breaks the request off; the origin may or may not have done it.
    ///
    /// # Errors
    ///
    /// Only [`OriginError::Busy`] (a limit of ours), [`OriginError::Unreachable`] and
    /// [`OriginError::BodyBroken`]: whatever the origin answers is an answer.
    async fn raw(&self, request: RawRequest) -> Result<RawAnswer, OriginError>;
}
