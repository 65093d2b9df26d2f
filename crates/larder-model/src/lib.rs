//! The vocabulary of Larder: names, versions, blocks, ranges, datasets, grants, errors, and the
//! traits through which the engine reaches everything else.
//!
//! What is not here: any I/O, any clock, any random number. This crate depends on nothing of ours,
//! and every other crate depends on it.
//!
//! Architecture invariant: a wrong program should not compile. There is no read without a
//! [`Permit`], and no served byte that did not come out of [`Block::open`], [`Block::seal`] or
//! straight from the origin.

mod block;
mod budget;
mod condition;
mod dataset;
mod grant;
mod name;
mod object;
mod port;
mod range;

pub use block::{Block, BlockKey, CHUNK_BYTES, Corrupt, ObjectDigest};
pub use budget::{Budget, Reserve};
pub use condition::{Conditions, ETagCondition, IfRange, Verdict};
pub use dataset::{
    Access, BucketRule, Dataset, Freshness, Namespace, NamespaceError, Quota, Resolved,
};
pub use grant::{Action, Denied, Grants, Permit, Principal};
pub use name::{
    BucketName, DatasetName, InvalidName, ObjectKey, OriginName, PolicyName, PoolName, VersionId,
};
pub use object::{ETag, ObjectMeta, ObjectName, Pinned, Version};
pub use port::catalog::{Catalog, CatalogChange, CatalogError, ObjectRecord};
pub use port::clock::{Clock, Timestamp};
pub use port::origin::{
    BodyBroken, BucketEntry, ErrorReply, FetchRequest, Fetched, HeadRequest, ListDialect, ListPage,
    ListRequest, ListedObject, Origin, OriginError, Owner, RawAnswer, RawBody, RawRequest, Trailer,
};
pub use port::policy::{
    Decisions, Entry, Event, EventKind, Handle, OnFull, Place, Policy, PolicyInfo, PolicySetup,
};
pub use port::store::{BlockStore, Load, PoolSpec, Stored, Tier};
pub use range::{BlockLayout, ByteRange, RangeSpec, Unsatisfiable};

/// The blocks that are fetched with one origin request at most, and the unit of placement in a
/// cluster: 16 blocks (DESIGN §5), 16 MiB at the default block length.
pub const SPAN_BLOCKS: u64 = 16;
