//! The object table and the catalog: what is read from it at a start, and what is written to it.

use super::slots::State;
use super::{Asked, Cause, Ledger, Object, cost};
use larder_model::{BlockLayout, Handle, ObjectName, ObjectRecord, Pinned, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Ledger {
    /// Takes in a record from before the restart, with the residents that the store still has.
    /// `stored` tells what a block of that length takes.
    pub(crate) fn restore(
        &mut self,
        record: &ObjectRecord,
        pinned: Arc<Pinned>,
        present: &[(u64, u64)],
    ) {
        let cost = cost(&pinned);
        let asked = Asked { tick: 0, at: record.asked_at };
        let headers = &pinned.meta.headers;
        let checksums = headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum-"));
        let object = Object {
            pinned,
            asked,
            used_at: record.used_at,
            checksums,
            handles: BTreeMap::new(),
            residents: 0,
            cause: Cause::Cold,
        };
        let digest = object.pinned.digest;
        let id = self.insert(object);
        self.table_bytes += cost;
        for (index, bytes) in present {
            if let Some(ticket) = self.name(id, digest, *index, *bytes) {
                self.pool.adopt(*bytes);
                self.settle(ticket.handle);
            }
        }
        // What was just read from the catalog need not be written to it.
        self.dirty.remove(&id);
    }

    /// Marks an object whose record no longer says what is true.
    /// Has the record of this name written, or removed, with the next changes.
    pub(crate) fn mark_again(&mut self, name: ObjectName) {
        match self.by_name.get(&name).copied() {
            Some(id) => self.mark(id),
            None => self.gone.push(name),
        }
    }

    /// Marks every object, so that the last write before the end has all ages right.
    pub(crate) fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.by_name.values());
    }

    /// Takes what changed since the last call: records to write, and names to forget.
    pub(crate) fn take_changes(&mut self) -> (Vec<Changed>, Vec<ObjectName>) {
        let changed = std::mem::take(&mut self.dirty)
            .into_iter()
            .filter_map(|id| {
                let object = self.object(id)?;
                let resident = |(index, handle): (&u32, &Handle)| {
                    let resident = self.slots.get(*handle).state == State::Resident;
                    resident.then_some(*index as usize)
                };
                Some(Changed {
                    pinned: object.pinned.clone(),
                    asked_at: object.asked_unless(self.doubted_below).at,
                    used_at: object.used_at,
                    resident: bitmap(object.handles.iter().filter_map(resident)),
                })
            })
            .collect();
        (changed, std::mem::take(&mut self.gone))
    }
}

/// What the catalog is to hold of an object.
pub(crate) struct Changed {
    pub(crate) pinned: Arc<Pinned>,
    pub(crate) asked_at: Timestamp,
    pub(crate) used_at: Timestamp,
    pub(crate) resident: Vec<u64>,
}

fn bitmap(indexes: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut words = Vec::new();
    for index in indexes {
        if words.len() <= index / 64 {
            words.resize(index / 64 + 1, 0);
        }
        words[index / 64] |= 1 << (index % 64);
    }
    words
}

/// The blocks of an object of `size` that a bitmap marks.
pub(crate) fn marked(bitmap: &[u64], layout: BlockLayout) -> impl Iterator<Item = u64> + '_ {
    (0..layout.count().min(bitmap.len() as u64 * 64))
        .filter(|index| bitmap[(index / 64) as usize] >> (index % 64) & 1 == 1)
}
