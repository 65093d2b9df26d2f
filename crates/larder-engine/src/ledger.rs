//! The object table of one dataset: what is known of each object, which blocks are resident, and
//! the events that a policy is told.
//!
//! Invariant: a slot is resident only while its object's entry is the version it was stored for,
//! so a changed object cannot keep old blocks in the count. Every change happens under one lock and
//! leaves its event in the order in which it happened.

mod doubts;
mod journal;
mod records;
mod slots;

use doubts::keyed;
use journal::Journal;
pub(crate) use records::marked;
pub(crate) use slots::Freed;

use crate::fence::Fences;
use crate::meters::Cause;
use crate::pool::Pool;
use larder_model::{Entry, EventKind, Handle, ObjectDigest, ObjectName, Pinned, Timestamp};
use slots::{Slots, State};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A dense number for an object of the table; reused after it was forgotten.
pub(crate) type ObjectId = u32;

/// The number of an object that is not in the table. Its blocks can be read, and are not kept.
pub(crate) const NOWHERE: ObjectId = ObjectId::MAX;

/// When the origin was asked: a tick orders asks and arrivals, the time tells age.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) tick: u64,
    pub(crate) at: Timestamp,
}

/// What the table knows of an object.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: ObjectId,
    pub(crate) pinned: Arc<Pinned>,
    pub(crate) asked: Asked,
    /// Whether stored checksums were asked for, too.
    pub(crate) checksums: bool,
    /// Whether it has bytes, and no block of it is resident or on its way.
    pub(crate) bare: bool,
    /// Whether a write of it is under way.
    pub(crate) fenced: bool,
}

/// The slot that one block of one version was given while it is being fetched. Good only as long as
/// the slot still stands for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    handle: Handle,
    id: ObjectId,
    digest: ObjectDigest,
    index: u32,
}

struct Object {
    pinned: Arc<Pinned>,
    asked: Asked,
    used_at: Timestamp,
    checksums: bool,
    /// The slots of its blocks that are resident or on their way, by index.
    handles: BTreeMap<u32, Handle>,
    /// How many of them are resident.
    residents: u32,
    /// Why the next miss of a block of it happens.
    cause: Cause,
}

impl Object {
    /// When the origin was asked; the default, which is never fresh, if that was before a tick below
    /// which all is in doubt.
    fn asked_unless(&self, doubted_below: u64) -> Asked {
        if self.asked.tick < doubted_below { Asked::default() } else { self.asked }
    }
}

/// Blocks from this index on pass through uncached: 16 TiB at 1 MiB a block. It bounds the bitmap
/// of an object's record to 2 MiB.
const MOST_BLOCKS: u32 = 1 << 24;

/// What a slot costs beside its 16 bytes: its place in the object's map.
const SLOT_BYTES: u64 = 32;

/// The table.
pub(crate) struct Ledger {
    by_name: HashMap<ObjectName, ObjectId>,
    /// Entries of one `versionId`, by the name without it: a write reaches them all.
    versioned: HashMap<ObjectName, Vec<ObjectId>>,
    /// Writes under way.
    pub(crate) fences: Fences,
    /// What the origin was asked before this tick is in doubt.
    doubted_below: u64,
    objects: Vec<Option<Object>>,
    vacant: Vec<ObjectId>,
    slots: Slots,
    pool: Arc<Pool>,
    pub(crate) journal: Journal,
    /// Whether a catalog wants to hear of changes; without one they are not collected.
    recorded: bool,
    dirty: HashSet<ObjectId>,
    gone: Vec<ObjectName>,
    resident_objects: u64,
    resident_bytes: u64,
    table_bytes: u64,
    table_limit: u64,
    hand: ObjectId,
}

/// What a new block may do.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Room was taken; these made it.
    Admitted(Vec<Freed>),
    /// Not to be kept. These went all the same.
    Rejected(Vec<Freed>),
}

impl Ledger {
    /// An empty table of at most about `table_limit` bytes, filling `pool`.
    pub(crate) fn new(pool: Arc<Pool>, table_limit: u64, recorded: bool) -> Self {
        Self {
            by_name: HashMap::new(),
            versioned: HashMap::new(),
            fences: Fences::default(),
            doubted_below: 0,
            objects: Vec::new(),
            vacant: Vec::new(),
            slots: Slots::default(),
            pool,
            journal: Journal::default(),
            recorded,
            dirty: HashSet::new(),
            gone: Vec::new(),
            resident_objects: 0,
            resident_bytes: 0,
            table_bytes: 0,
            table_limit,
            hand: 0,
        }
    }

    /// What is known of `name`; counts as a use of it.
    pub(crate) fn find(&mut self, name: &ObjectName, now: Timestamp) -> Option<Found> {
        let id = *self.by_name.get(name)?;
        let object = self.objects.get_mut(id as usize)?.as_mut()?;
        object.used_at = now;
        let asked = object.asked_unless(self.doubted_below);
        Some(Found {
            id,
            pinned: object.pinned.clone(),
            asked,
            fenced: self.fences.over(name),
            checksums: object.checksums,
            bare: object.handles.is_empty() && object.pinned.meta.size > 0,
        })
    }

    /// Takes in what the origin said when it was asked at `asked`. An answer older than what is
    /// known already changes nothing. Tells the object's number and the blocks of another version
    /// that this freed.
    pub(crate) fn observe(
        &mut self,
        pinned: Arc<Pinned>,
        asked: Asked,
        checksums: bool,
    ) -> (ObjectId, Vec<Freed>) {
        if let Some(id) = self.by_name.get(&pinned.name).copied()
            && let Some(object) = &mut self.objects[id as usize]
        {
            if object.asked.tick > asked.tick {
                return (id, Vec::new());
            }
            let same = object.pinned.digest == pinned.digest;
            object.asked = asked;
            object.checksums = checksums;
            if same && object.pinned.meta.headers == pinned.meta.headers {
                return (id, Vec::new());
            }
            let freed = if same { Vec::new() } else { self.strip(id) };
            if let Some(object) = &mut self.objects[id as usize] {
                self.table_bytes = self.table_bytes.saturating_sub(cost(&object.pinned));
                self.table_bytes += cost(&pinned);
                object.pinned = pinned;
                if !same {
                    object.cause = Cause::Stale;
                }
            }
            self.mark(id);
            return (id, freed);
        }
        let freed = self.shrink();
        let at = asked.at;
        let cost = cost(&pinned);
        let object = Object {
            pinned,
            asked,
            used_at: at,
            checksums,
            handles: BTreeMap::new(),
            residents: 0,
            cause: Cause::Cold,
        };
        let id = self.insert(object);
        self.table_bytes += cost;
        self.mark(id);
        (id, freed)
    }

    fn insert(&mut self, object: Object) -> ObjectId {
        let name = object.pinned.name.clone();
        let id = match self.vacant.pop() {
            Some(id) => {
                self.objects[id as usize] = Some(object);
                id
            }
            None => {
                self.objects.push(Some(object));
                self.objects.len() as ObjectId - 1
            }
        };
        if name.version_id.is_some() {
            self.versioned.entry(keyed(&name)).or_default().push(id);
        }
        self.by_name.insert(name, id);
        id
    }

    /// Frees every block of an object.
    fn strip(&mut self, id: ObjectId) -> Vec<Freed> {
        let Some(object) = &self.objects[id as usize] else { return Vec::new() };
        let handles: Vec<_> = object.handles.values().copied().collect();
        handles.into_iter().filter_map(|handle| self.free(handle)).collect()
    }

    /// Notes that an object's record is no longer true.
    fn mark(&mut self, id: ObjectId) {
        if self.recorded {
            self.dirty.insert(id);
        }
    }

    fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id as usize)?.as_ref()
    }

    /// The object, if its entry is still the version that the caller pinned.
    fn current(&mut self, id: ObjectId, digest: ObjectDigest) -> Option<&mut Object> {
        let object = self.objects.get_mut(id as usize)?.as_mut()?;
        (object.pinned.digest == digest).then_some(object)
    }

    fn handle_of(&mut self, id: ObjectId, digest: ObjectDigest, index: u64) -> Option<Handle> {
        let index = u32::try_from(index).ok()?;
        self.current(id, digest)?.handles.get(&index).copied()
    }

    /// Whether the block is resident.
    pub(crate) fn resident(&mut self, id: ObjectId, digest: ObjectDigest, index: u64) -> bool {
        self.handle_of(id, digest, index)
            .is_some_and(|handle| self.slots.get(handle).state == State::Resident)
    }

    /// A block was served from the cache.
    pub(crate) fn touch(&mut self, id: ObjectId, digest: ObjectDigest, index: u64, job: u16) {
        if let Some(handle) = self.handle_of(id, digest, index)
            && self.slots.touch(handle)
        {
            self.journal.event(EventKind::Access, handle, job);
        }
    }

    /// A client opened the object, or is done with it.
    pub(crate) fn session(
        &mut self,
        kind: EventKind,
        id: ObjectId,
        digest: ObjectDigest,
        job: u16,
    ) {
        if let Some(handle) = self.handle_of(id, digest, 0) {
            self.journal.event(kind, handle, job);
        }
    }

    /// A block was asked for and is about to be fetched; `bytes` is what it would take as stored.
    /// No ticket when the object has changed meanwhile, or for a block too far behind: then there is
    /// nothing to keep the block for.
    pub(crate) fn miss(
        &mut self,
        id: ObjectId,
        digest: ObjectDigest,
        index: u64,
        bytes: u64,
        job: u16,
    ) -> (Option<Ticket>, Cause) {
        let Some(object) = self.current(id, digest) else { return (None, Cause::Stale) };
        let cause = object.cause;
        let ticket = self.name(id, digest, index, bytes);
        if let Some(ticket) = ticket {
            self.journal.event(EventKind::Miss, ticket.handle, job);
        }
        (ticket, cause)
    }

    /// Gives a block its slot, if it has none. No ticket as in [`Ledger::miss`].
    pub(crate) fn name(
        &mut self,
        id: ObjectId,
        digest: ObjectDigest,
        index: u64,
        bytes: u64,
    ) -> Option<Ticket> {
        let bytes = u32::try_from(bytes).ok()?;
        let at = u32::try_from(index).ok().filter(|at| *at < MOST_BLOCKS)?;
        if let Some(handle) = self.handle_of(id, digest, index) {
            return Some(Ticket { handle, id, digest, index: at });
        }
        self.current(id, digest)?;
        let handle = self.slots.mint(id, at, bytes);
        let object = self.current(id, digest)?;
        object.handles.insert(at, handle);
        let offset = index * u64::from(object.pinned.block_bytes);
        let key = object.pinned.name.key.as_str().to_owned();
        self.table_bytes += SLOT_BYTES;
        self.journal.entry(Entry { handle, bytes, key, offset });
        Some(Ticket { handle, id, digest, index: at })
    }

    /// The policy does not want this block.
    pub(crate) fn refuse(&mut self, handle: Handle) {
        self.slots.refuse(handle);
    }

    /// Takes room for a block that has arrived. With `evict`, makes room by the host's own order
    /// when there is none: residents that were not read lately, round and round.
    pub(crate) fn admit(&mut self, ticket: Ticket, evict: bool) -> Admission {
        let mut freed = Vec::new();
        if !self.stands(ticket, State::Named) {
            return Admission::Rejected(freed);
        }
        let slot = self.slots.get(ticket.handle);
        let bytes = u64::from(slot.bytes);
        let mut room = !slot.refused && self.pool.take(bytes);
        while !room && evict && !slot.refused && bytes <= self.pool.capacity() {
            let Some(victim) = self.slots.sweep() else { break };
            freed.extend(self.evict(victim));
            room = self.pool.take(bytes);
        }
        if room {
            self.slots.set(ticket.handle, State::Storing);
            return Admission::Admitted(freed);
        }
        self.unname(ticket.handle);
        Admission::Rejected(freed)
    }

    /// Whether the slot still stands for the ticket's block, in this state.
    fn stands(&mut self, ticket: Ticket, state: State) -> bool {
        let slot = self.slots.get(ticket.handle);
        slot.state == state
            && slot.object == ticket.id
            && slot.index == ticket.index
            && self.current(ticket.id, ticket.digest).is_some()
    }

    /// Lets go of a block that was fetched and is not kept.
    fn unname(&mut self, handle: Handle) {
        let id = self.slots.get(handle).object;
        if let Some(object) = &mut self.objects[id as usize] {
            object.cause = Cause::Evicted;
        }
        self.free(handle);
    }

    /// A fetch came to nothing: the block is not on its way any more.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if self.stands(ticket, State::Named) {
            self.free(ticket.handle);
        }
    }

    /// The store has the block. `false` when the object changed while it was being stored: then
    /// the caller removes it from the store again.
    pub(crate) fn confirm(&mut self, ticket: Ticket) -> bool {
        let stands = self.stands(ticket, State::Storing);
        if stands {
            self.settle(ticket.handle);
        }
        stands
    }

    /// Counts a slot as resident.
    fn settle(&mut self, handle: Handle) {
        let slot = self.slots.get(handle);
        self.slots.set(handle, State::Resident);
        self.resident_bytes += u64::from(slot.bytes);
        if let Some(object) = &mut self.objects[slot.object as usize] {
            object.residents += 1;
            self.resident_objects += u64::from(object.residents == 1);
        }
        self.mark(slot.object);
        self.journal.event(EventKind::Insert, handle, 0);
    }

    /// The store did not keep the block.
    pub(crate) fn retract(&mut self, ticket: Ticket) {
        if self.stands(ticket, State::Storing) {
            self.unname(ticket.handle);
        }
    }

    /// A resident block turned out not to be there, or not to be whole.
    pub(crate) fn lose(
        &mut self,
        id: ObjectId,
        digest: ObjectDigest,
        index: u64,
        cause: Cause,
    ) -> Option<Freed> {
        let handle = self.handle_of(id, digest, index)?;
        if self.slots.get(handle).state != State::Resident {
            return None;
        }
        self.current(id, digest)?.cause = cause;
        self.free(handle)
    }

    /// Evicts a resident block; anything else is left alone.
    pub(crate) fn evict(&mut self, handle: Handle) -> Option<Freed> {
        let slot = self.slots.find(handle).filter(|slot| slot.state == State::Resident)?;
        if let Some(object) = &mut self.objects[slot.object as usize] {
            object.cause = Cause::Evicted;
        }
        self.free(handle)
    }

    /// Gives a slot's room back and tells the policy. The freed block is told when the store may
    /// have it.
    fn free(&mut self, handle: Handle) -> Option<Freed> {
        let slot = self.slots.get(handle);
        let bytes = u64::from(slot.bytes);
        let object = self.objects[slot.object as usize].as_mut()?;
        let key = object.pinned.digest.block(u64::from(slot.index));
        object.handles.remove(&slot.index);
        self.table_bytes = self.table_bytes.saturating_sub(SLOT_BYTES);
        if slot.state == State::Resident {
            object.residents -= 1;
            self.resident_objects -= u64::from(object.residents == 0);
            self.resident_bytes -= bytes;
            self.mark(slot.object);
        }
        let stored = matches!(slot.state, State::Resident | State::Storing);
        if stored {
            self.pool.give(bytes);
        }
        self.slots.release(handle);
        self.journal.event(EventKind::Remove, handle, 0);
        stored.then_some(Freed { key, bytes })
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    pub(crate) fn resident_objects(&self) -> u64 {
        self.resident_objects
    }

    pub(crate) fn known_objects(&self) -> u64 {
        self.by_name.len() as u64
    }
}

/// About how much memory an entry takes: measured once for a record with ten headers, and the part
/// that varies added.
fn cost(pinned: &Pinned) -> u64 {
    const FIXED: usize = 640;
    let headers = &pinned.meta.headers;
    let varying: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 48).sum();
    (FIXED + pinned.name.key.as_str().len() + varying) as u64
}
