//! The events that the policy has not been told yet.
//!
//! Bounded in the one kind that a client can make at will: beyond the bound, access events are
//! dropped and counted. Misses, inserts and removes are bounded by what is being fetched.

use larder_model::{Entry, Event, EventKind, Handle};
use std::collections::HashMap;
use std::sync::Arc;

const MOST_EVENTS: usize = 65_536;
const MOST_JOBS: usize = 4_096;

/// Events in order, and the blocks that they name for the first time.
#[derive(Default)]
pub(crate) struct Journal {
    entries: Vec<Entry>,
    events: Vec<Event>,
    jobs: HashMap<Arc<str>, u16>,
    dropped: u64,
}

/// What [`Journal::take`] hands out.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<Event>,
    /// Access events that had to be dropped since the last batch.
    pub(crate) dropped: u64,
}

impl Journal {
    pub(crate) fn event(&mut self, kind: EventKind, handle: Handle, job: u16) {
        let optional = matches!(kind, EventKind::Access | EventKind::Open | EventKind::Close);
        if optional && self.events.len() >= MOST_EVENTS {
            self.dropped += 1;
            return;
        }
        self.events.push(Event { kind, handle, job });
    }

    pub(crate) fn entry(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// A number for a job's name; 0 once there are too many names.
    pub(crate) fn job(&mut self, name: &Arc<str>) -> u16 {
        if let Some(number) = self.jobs.get(name) {
            return *number;
        }
        if self.jobs.len() >= MOST_JOBS {
            return 0;
        }
        let number = self.jobs.len() as u16 + 1;
        self.jobs.insert(name.clone(), number);
        number
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn take(&mut self) -> Batch {
        Batch {
            entries: std::mem::take(&mut self.entries),
            events: std::mem::take(&mut self.events),
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Journal, MOST_EVENTS, MOST_JOBS};
    use larder_model::EventKind;

    #[test]
    fn a_flood_of_accesses_never_pushes_out_a_remove() {
        let mut journal = Journal::default();
        for _ in 0..MOST_EVENTS + 5 {
            journal.event(EventKind::Access, 1, 0);
        }
        journal.event(EventKind::Remove, 1, 0);
        let batch = journal.take();
        assert_eq!(batch.events.len(), MOST_EVENTS + 1);
        assert_eq!(batch.events.last().map(|event| event.kind), Some(EventKind::Remove));
        assert_eq!(batch.dropped, 5);
    }

    #[test]
    fn jobs_are_numbered_and_bounded() {
        let mut journal = Journal::default();
        let a = journal.job(&"a".into());
        assert_eq!(journal.job(&"a".into()), a);
        assert_ne!(journal.job(&"b".into()), a);
        for n in 0..MOST_JOBS {
            journal.job(&n.to_string().into());
        }
        assert_eq!(journal.job(&"one too many".into()), 0);
    }
}
