//! One block in the map of blocks in flight, owned by the task that brings it.
//!
//! Invariant: a block leaves the map, and its followers hear of an end, whatever becomes of the
//! task: finished, failed, cancelled or panicked.

use crate::ReadError;
use crate::arriving::{Arriving, End};
use crate::ledger::Ticket;
use crate::shelf::{Pin, Shelf, lock};
use larder_model::BlockKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks in flight, by key.
pub(crate) type Fills = HashMap<BlockKey, Arc<Arriving>>;

/// The owner's end of a block in flight.
pub(crate) struct Flying {
    shelf: Arc<Shelf>,
    pin: Pin,
    index: u64,
    /// Its slot in the object table; none for a load, or for an object that changed meanwhile.
    ticket: Option<Ticket>,
    arriving: Arc<Arriving>,
}

impl Flying {
    /// The block must have been put into the map by the caller.
    pub(crate) fn new(
        shelf: Arc<Shelf>,
        pin: Pin,
        index: u64,
        ticket: Option<Ticket>,
        arriving: Arc<Arriving>,
    ) -> Self {
        Self { shelf, pin, index, ticket, arriving }
    }

    pub(crate) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    pub(crate) fn arriving(&self) -> &Arc<Arriving> {
        &self.arriving
    }

    /// Takes it out of the map, then tells its followers: one that looks again finds the truth.
    pub(crate) fn end(mut self, end: End) {
        self.leave();
        self.arriving.finish(end);
    }

    /// Once: a second time the slot could be somebody else's already.
    fn leave(&mut self) {
        let key = self.arriving.key();
        let mut fills = lock(&self.shelf.fills);
        if fills.get(&key).is_some_and(|arriving| Arc::ptr_eq(arriving, &self.arriving)) {
            fills.remove(&key);
        }
        if let Some(ticket) = self.ticket.take() {
            self.shelf.ledger().abandon(ticket);
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.leave();
        let origin = self.shelf.origin.name().clone();
        let reason = "the task that brought it ended early".to_owned();
        // Ignored by a block that has had its end.
        self.arriving.finish(End::Failed(ReadError::Unreachable { origin, reason }));
    }
}
