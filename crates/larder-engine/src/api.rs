//! What callers of the engine ask and get.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use larder_model::{
    ByteRange, Conditions, ErrorReply, ObjectKey, ObjectMeta, ObjectName, OriginName, Permit,
    RangeSpec, RawRequest,
};
use std::sync::Arc;
use std::time::Duration;

/// A GET or HEAD, resolved and parsed but not yet pinned.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// The object at the origin, from [`larder_model::Namespace::resolve`].
    pub name: ObjectName,
    /// The bytes that are wanted; all without.
    pub range: Option<RangeSpec>,
    /// `partNumber`: the answer is the origin's and is not cached.
    pub part_number: Option<u32>,
    /// The conditional headers.
    pub conditions: Conditions,
    /// `x-amz-checksum-mode: ENABLED`: the answer carries the stored checksums.
    pub checksums: bool,
    /// Who reads: the `x-larder-job` header, else the access key. For the policy.
    pub job: Arc<str>,
}

/// Where the first byte of an answer came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The memory of this node.
    Memory,
    /// Its SSD.
    Disk,
    /// The origin.
    Origin,
}

impl Source {
    /// The value of `x-larder-cache` and of the metrics' `source` label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Origin => "origin",
        }
    }
}

/// The answer to a HEAD.
#[derive(Clone, Debug)]
pub struct Head {
    /// The object's state.
    pub meta: Arc<ObjectMeta>,
    /// The bytes that the request's range means; `None` when it had none, or one that S3 ignores.
    pub range: Option<ByteRange>,
    /// Whether the origin was asked.
    pub source: Source,
}

/// The answer to a GET.
pub struct Answer {
    /// The object's state. Every byte of `body` is of this state.
    pub meta: Arc<ObjectMeta>,
    /// For 206: which bytes. `None` for 200: all of them.
    pub range: Option<ByteRange>,
    /// Where the first byte came from.
    pub source: Source,
    /// The bytes.
    pub body: Body,
}

/// The bytes of an answer, exactly as many as its `range`, or as the object has.
pub enum Body {
    /// All of them at once; may be empty. A memory hit of one block.
    Full(Bytes),
    /// Piece by piece. An error in mid-stream means that the connection must be closed short.
    Stream(BoxStream<'static, Result<Bytes, ReadError>>),
}

/// A request that goes around the cache: a write, or a read of what is not cached.
pub struct PassRequest {
    /// The request, in the origin's names.
    pub raw: RawRequest,
    /// What it may change. Anything but [`Changes::Nothing`] needs a permit to write.
    pub changes: Changes,
    /// The source of a copy, in the origin's names, with the permit to read it.
    pub source: Option<(Permit, ObjectName)>,
}

/// What a request may change at the origin, so that nothing older is served from the cache once it
/// has been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Nothing that is cached.
    Nothing,
    /// These objects of the request's bucket, in every version.
    Objects(Vec<ObjectKey>),
    /// Anything in the request's bucket.
    Bucket,
}

/// The origin's answer to a [`PassRequest`], whatever its status.
pub struct Passed {
    /// The HTTP status.
    pub status: u16,
    /// The headers, as [`larder_model::RawAnswer`] describes them.
    pub headers: HeaderMap,
    /// The body. Until it has ended or was dropped, what was changed counts as being written: each of
    /// its readers has the origin asked.
    pub body: BoxStream<'static, Result<Bytes, ReadError>>,
}

/// Why there is no answer, or no more of it. The gateway turns each into one S3 error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// 304, with the object's headers.
    #[error("not modified")]
    NotModified(Arc<ObjectMeta>),
    /// 412.
    #[error("a precondition of the request does not hold for the object's current version")]
    PreconditionFailed(Arc<ObjectMeta>),
    /// 416.
    #[error("the requested range lies outside the object's {size} bytes")]
    RangeNotSatisfiable {
        /// The object's size.
        size: u64,
    },
    /// What the origin answered, to be replayed: 404, 403, …
    #[error("the origin answered {} {}", .0.status, .0.code)]
    Origin(ErrorReply),
    /// 503 SlowDown with Retry-After.
    #[error("too busy: {reason}")]
    Busy {
        /// Which limit was met.
        reason: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// 503 ServiceUnavailable with Retry-After.
    #[error("origin {origin} cannot be reached: {reason}")]
    Unreachable {
        /// The origin.
        origin: OriginName,
        /// What was tried; holds no secret.
        reason: String,
    },
    /// The object kept changing while it was being read: before the first byte, 503 with
    /// Retry-After; after it, the connection is closed short.
    #[error("{0} changed while it was being read")]
    Changed(ObjectName),
    /// The body of the caller's own request broke off; the caller knows why.
    #[error("the request's body broke off")]
    BodyBroken,
    /// The permit is not for this request: a defect of the caller, answered with 403.
    #[error("the permit for dataset {dataset} does not cover {name}")]
    NotPermitted {
        /// The dataset of the permit.
        dataset: String,
        /// What was asked for.
        name: String,
    },
}
