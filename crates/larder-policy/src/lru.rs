//! Least recently used: the block that nobody asked for longest goes first.
//!
//! On shuffled epochs its hit ratio is c + (1−c)·ln(1−c) for a cache that holds the fraction c;
//! `keep` is better there. It is the default because it is right for everything unknown.

use crate::order::Order;
use larder_model::{
    Decisions, Entry, Event, EventKind, Handle, OnFull, Policy, PolicyInfo, PolicyName, PolicySetup,
};
use std::collections::HashMap;

/// The policy `lru`.
pub struct Lru {
    name: PolicyName,
    /// Sizes of blocks that were named and are not resident yet.
    named: HashMap<Handle, u32>,
    residents: Order,
}

impl Lru {
    /// An empty one.
    ///
    /// # Panics
    ///
    /// Never: the name is valid.
    #[expect(clippy::expect_used, reason = "the literal keeps the rules of a policy's name")]
    #[must_use]
    pub fn new(_setup: &PolicySetup) -> Self {
        let name = PolicyName::new("lru").expect("a valid name");
        Self { name, named: HashMap::new(), residents: Order::new() }
    }
}

impl Policy for Lru {
    fn describe(&self) -> PolicyInfo {
        PolicyInfo { name: self.name.clone(), on_full: OnFull::Evict }
    }

    fn on_batch(&mut self, _now_ms: u64, entries: &[Entry], events: &[Event]) -> Decisions {
        self.named.extend(entries.iter().map(|entry| (entry.handle, entry.bytes)));
        for event in events {
            match event.kind {
                EventKind::Insert => {
                    let bytes = self.named.remove(&event.handle).unwrap_or(0);
                    self.residents.push(event.handle, bytes);
                }
                EventKind::Access => self.residents.touch(event.handle),
                EventKind::Remove => {
                    self.named.remove(&event.handle);
                    self.residents.remove(event.handle);
                }
                EventKind::Miss | EventKind::Open | EventKind::Close => {}
            }
        }
        Decisions::default()
    }

    fn victims(&mut self, _now_ms: u64, need_bytes: u64, max: usize) -> Vec<Handle> {
        let mut freed = 0;
        let short = |(_, bytes): &(Handle, u32)| {
            let short = freed < need_bytes;
            freed += u64::from(*bytes);
            short
        };
        self.residents.iter().take_while(short).take(max).map(|(handle, _)| handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Lru;
    use larder_model::{Entry, Event, EventKind, Policy, PolicySetup};

    fn event(kind: EventKind, handle: u32) -> Event {
        Event { kind, handle, job: 0 }
    }

    fn filled(handles: u32) -> Lru {
        let mut lru = Lru::new(&PolicySetup { capacity_bytes: 100, seed: 0 });
        let entry = |handle| Entry { handle, bytes: 10, key: String::new(), offset: 0 };
        let entries: Vec<_> = (0..handles).map(entry).collect();
        let inserts: Vec<_> = (0..handles).map(|h| event(EventKind::Insert, h)).collect();
        lru.on_batch(0, &entries, &inserts);
        lru
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = filled(4);
        lru.on_batch(0, &[], &[event(EventKind::Access, 0), event(EventKind::Access, 1)]);
        assert_eq!(lru.victims(0, 25, 99), vec![2, 3, 0]);
    }

    #[test]
    fn what_was_removed_is_no_victim() {
        let mut lru = filled(3);
        lru.on_batch(0, &[], &[event(EventKind::Remove, 0)]);
        assert_eq!(lru.victims(0, 1000, 99), vec![1, 2]);
        assert_eq!(lru.victims(0, 1000, 1), vec![1]);
        assert!(lru.victims(0, 0, 99).is_empty());
    }
}
