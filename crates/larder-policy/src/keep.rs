//! Keep what came first: admit until the quota is full, then evict nothing within the epoch.
//!
//! When every block is read once an epoch in a shuffled order, no demand policy has a better hit
//! ratio than the fraction that fits (Belady's bound equals it), and this one reaches it; LRU
//! throws blocks out just before they are needed.
//!
//! Blocks that nobody has read for several epochs are let go, so that a dataset that lost files, or
//! a job that moved on, does not hold the quota for ever.

use crate::order::Order;
use larder_model::{
    Decisions, Entry, Event, EventKind, Handle, OnFull, Policy, PolicyInfo, PolicyName, PolicySetup,
};
use std::collections::HashMap;

/// How many epochs a block may go unread. With an epoch's turn at half of the residents, a block
/// that is read once an epoch is at most two turns old; three is safely beyond.
const IDLE_EPOCHS: u32 = 3;

/// The policy `keep`.
pub struct Keep {
    name: PolicyName,
    named: HashMap<Handle, u32>,
    /// Residents, least recently read first.
    residents: Order,
    /// The epoch in which each resident was last read, by handle.
    read_in: Vec<u32>,
    epoch: u32,
    count: u64,
    /// Residents read a second time in this epoch: the sign that the next one has begun.
    repeats: u64,
}

impl Keep {
    /// An empty one, in its first epoch.
    ///
    /// # Panics
    ///
    /// Never: the name is valid.
    #[expect(clippy::expect_used, reason = "the literal keeps the rules of a policy's name")]
    #[must_use]
    pub fn new(_setup: &PolicySetup) -> Self {
        Self {
            name: PolicyName::new("keep").expect("a valid name"),
            named: HashMap::new(),
            residents: Order::new(),
            read_in: Vec::new(),
            epoch: IDLE_EPOCHS,
            count: 0,
            repeats: 0,
        }
    }

    fn insert(&mut self, handle: Handle) {
        let bytes = self.named.remove(&handle).unwrap_or(0);
        if !self.residents.contains(handle) {
            self.count += 1;
        }
        self.residents.push(handle, bytes);
        let at = handle as usize;
        if self.read_in.len() <= at {
            self.read_in.resize(at + 1, 0);
        }
        self.read_in[at] = self.epoch;
    }

    fn access(&mut self, handle: Handle) {
        if !self.residents.contains(handle) {
            return;
        }
        self.residents.touch(handle);
        let read_in = &mut self.read_in[handle as usize];
        if *read_in < self.epoch {
            *read_in = self.epoch;
            return;
        }
        self.repeats += 1;
        if self.repeats * 2 > self.count {
            self.epoch += 1;
            self.repeats = 0;
        }
    }
}

impl Policy for Keep {
    fn describe(&self) -> PolicyInfo {
        PolicyInfo { name: self.name.clone(), on_full: OnFull::Reject }
    }

    fn on_batch(&mut self, _now_ms: u64, entries: &[Entry], events: &[Event]) -> Decisions {
        self.named.extend(entries.iter().map(|entry| (entry.handle, entry.bytes)));
        for event in events {
            match event.kind {
                EventKind::Insert => self.insert(event.handle),
                EventKind::Access => self.access(event.handle),
                EventKind::Remove => {
                    self.named.remove(&event.handle);
                    if self.residents.remove(event.handle).is_some() {
                        self.count -= 1;
                    }
                }
                EventKind::Miss | EventKind::Open | EventKind::Close => {}
            }
        }
        Decisions::default()
    }

    fn victims(&mut self, _now_ms: u64, need_bytes: u64, max: usize) -> Vec<Handle> {
        let mut freed = 0;
        let idle = |(handle, bytes): &(Handle, u32)| {
            let idle = self.read_in[*handle as usize] + IDLE_EPOCHS <= self.epoch;
            let short = freed < need_bytes;
            freed += u64::from(*bytes);
            idle && short
        };
        self.residents.iter().take_while(idle).take(max).map(|(handle, _)| handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Keep;
    use larder_model::{Entry, Event, EventKind, Policy, PolicySetup};
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;

    fn event(kind: EventKind, handle: u32) -> Event {
        Event { kind, handle, job: 0 }
    }

    fn filled(handles: u32) -> Keep {
        let mut keep = Keep::new(&PolicySetup { capacity_bytes: 0, seed: 0 });
        for handle in 0..handles {
            let entry = Entry { handle, bytes: 10, key: String::new(), offset: 0 };
            keep.on_batch(0, &[entry], &[event(EventKind::Insert, handle)]);
        }
        keep
    }

    fn read(keep: &mut Keep, handle: u32) {
        keep.on_batch(0, &[], &[event(EventKind::Access, handle)]);
    }

    #[test]
    fn nothing_goes_while_epochs_go_round() {
        let mut keep = filled(100);
        let mut order: Vec<u32> = (0..100).collect();
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..50 {
            order.shuffle(&mut rng);
            for handle in &order {
                read(&mut keep, *handle);
                assert!(keep.victims(0, u64::MAX, 1000).is_empty());
            }
        }
        assert!(keep.epoch > 30, "{} epochs were seen", keep.epoch);
    }

    #[test]
    fn what_no_epoch_reads_any_more_goes() {
        let mut keep = filled(100);
        for _ in 0..8 {
            (20..100).for_each(|handle| read(&mut keep, handle));
        }
        let mut victims = keep.victims(0, u64::MAX, 1000);
        victims.sort_unstable();
        assert_eq!(victims, (0..20).collect::<Vec<_>>());
        assert_eq!(keep.victims(0, 25, 1000).len(), 3);
    }
}
