//! The policy port: who decides, per dataset and node, what is kept and what makes room.
//!
//! A policy is single-threaded and off the response path. It sees batches of events and answers
//! with wishes; the host validates each of them and falls back to its own order when an answer is
//! late, short or wrong. So no policy can make a response wrong.

use crate::PolicyName;

/// A block of the dataset, (object, index), under a dense number that the host minted when it was
/// first named. Reused only after a remove event.
pub type Handle = u32;

/// What a policy is told when it starts.
#[derive(Clone, Debug)]
pub struct PolicySetup {
    /// Bytes that residents may take, as stored.
    pub capacity_bytes: u64,
    /// A seed for whatever it wants to draw.
    pub seed: u64,
}

/// What a policy says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: PolicyName,
    /// What the host is to do with a new block when the quota is full and no victim is nominated.
    pub on_full: OnFull,
}

/// What happens to a new block at a full quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFull {
    /// The block is not admitted, and eviction does not run ahead at the watermark.
    Reject,
    /// The host makes room, by its own order if it must.
    Evict,
}

/// A block named for the first time, with what does not change about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number under which events speak of it.
    pub handle: Handle,
    /// Bytes that it takes as stored.
    pub bytes: u32,
    /// The object's key.
    pub key: String,
    /// The block's offset in the object.
    pub offset: u64,
}

/// What happened to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It was asked for and was not there; a fill has begun. [`Decisions::place`] may answer.
    Miss,
    /// It was served from the cache.
    Access,
    /// It became resident.
    Insert,
    /// It is no longer resident, for whatever reason; the handle is free again.
    Remove,
    /// A client opened the object that it belongs to (told for the object's first block).
    Open,
    /// That reader is done.
    Close,
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The block.
    pub handle: Handle,
    /// A number for the job that caused it: the `x-larder-job` header, else the access key.
    pub job: u16,
}

/// Where a new block is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Serve it and forget it.
    Skip,
    /// Keep it.
    Keep,
}

/// A policy's answer to a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Answers to miss events. A miss without an answer is kept if there is room.
    pub place: Vec<(Handle, Place)>,
}

/// Decides what stays. One instance per dataset and node.
pub trait Policy: Send {
    /// Its name and manners.
    fn describe(&self) -> PolicyInfo;

    /// Takes a batch of events, in the order in which they happened. `entries` are the handles that
    /// the batch names for the first time. After a restart or a change of policy the first batches
    /// are the residents, least recently used first, as insert events.
    fn on_batch(&mut self, now_ms: u64, entries: &[Entry], events: &[Event]) -> Decisions;

    /// Residents to evict, best victim first: enough for `need_bytes` if it can, `max` at most.
    /// Told again by remove events which of them really went.
    fn victims(&mut self, now_ms: u64, need_bytes: u64, max: usize) -> Vec<Handle>;
}
