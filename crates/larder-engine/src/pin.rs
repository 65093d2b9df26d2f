//! Pinning: from a name to one version of the object, as fresh as the dataset demands.
//!
//! Asks for one name are coalesced: while one is under way, others wait for it. Whether its answer
//! is good enough for a waiter is decided by the freshness rule, not by luck: a reader of a strict
//! dataset accepts only an ask that began after the reader arrived.

use crate::fill::FirstRange;
use crate::ledger::{Asked, Found};
use crate::shelf::{Pin, Shelf, lock};
use crate::{ReadError, fill};
use larder_model::{Freshness, HeadRequest, ObjectMeta, ObjectName, OriginError, Pinned};
use std::sync::Arc;
use tokio::sync::watch;

/// What a reader needs of a pin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Stored checksums are to be in the headers.
    pub(crate) checksums: bool,
    /// The reader wants bytes from here on: if nothing is known, fetch them with the first ask.
    pub(crate) first: Option<FirstRange>,
}

/// The result of pinning.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// This version; `asked` tells whether the origin was asked on this reader's behalf.
    Pinned { pin: Pin, asked: bool },
    /// The object has no usable version: it passes through uncached.
    Uncacheable(Arc<ObjectMeta>),
}

/// One ask under way.
pub(crate) struct Flight {
    asked: Asked,
    checksums: bool,
    result: watch::Receiver<Option<Landed>>,
}

type Landed = Result<Option<Arc<ObjectMeta>>, ReadError>;

/// The asking task's end of a flight. Takes the flight off the board before anybody hears of the
/// result, also when the task dies.
pub(crate) struct Landing {
    shelf: Arc<Shelf>,
    name: ObjectName,
    flight: Arc<Flight>,
    result: watch::Sender<Option<Landed>>,
    landed: bool,
}

impl Landing {
    /// The version is in the table.
    pub(crate) fn known(self) {
        self.land(Ok(None));
    }

    /// The object cannot be cached.
    pub(crate) fn uncacheable(self, meta: Arc<ObjectMeta>) {
        self.land(Ok(Some(meta)));
    }

    /// The ask failed.
    pub(crate) fn failed(self, error: ReadError) {
        self.land(Err(error));
    }

    fn land(mut self, result: Landed) {
        self.leave();
        self.landed = true;
        self.result.send_replace(Some(result));
    }

    fn leave(&self) {
        let mut flights = lock(&self.shelf.flights);
        if flights.get(&self.name).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.name);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // Waiters see the closed channel.
        if !self.landed {
            self.leave();
        }
    }
}

impl Shelf {
    /// One version of `name`, fresh enough for a reader who arrives now.
    ///
    /// Cancel safe: the ask goes on without the reader, for the others.
    pub(crate) async fn pin(
        self: &Arc<Self>,
        name: &ObjectName,
        need: Need,
    ) -> Result<Outcome, ReadError> {
        let arrived = self.tick();
        let mut asked = false;
        loop {
            if let Some(pin) = self.known(name, arrived, need) {
                return Ok(Outcome::Pinned { pin, asked });
            }
            let Some(flight) = self.board(name, arrived, need) else { continue };
            asked = true;
            let mut result = flight.result.clone();
            let landed = match result.wait_for(Option::is_some).await {
                Ok(landed) => landed.clone(),
                Err(_) => None,
            };
            match landed {
                Some(Ok(None)) => {}
                Some(Ok(Some(meta))) if self.recent(flight.asked, arrived) => {
                    return Ok(Outcome::Uncacheable(meta));
                }
                // "Not there" is an answer like any other: it must be fresh, too.
                Some(Err(ReadError::Origin(_))) if !self.recent(flight.asked, arrived) => {}
                Some(Ok(Some(_))) => {}
                Some(Err(error)) => return Err(error),
                None => {
                    let reason = "the task that asked it ended early".to_owned();
                    let origin = self.origin.name().clone();
                    return Err(ReadError::Unreachable { origin, reason });
                }
            }
        }
    }

    /// The pin, if nothing has to be asked for it.
    pub(crate) fn known_now(&self, name: &ObjectName, checksums: bool) -> Option<Pin> {
        // No ask can have begun after such a reader: the dataset's rule alone decides.
        self.known(name, u64::MAX, Need { checksums, first: None })
    }

    fn known(&self, name: &ObjectName, arrived: u64, need: Need) -> Option<Pin> {
        let now = self.clock.now();
        let found = self.ledger().find(name, now)?;
        let good = self.fresh(&found, arrived) && (found.checksums || !need.checksums);
        good.then_some(Pin { id: found.id, pinned: found.pinned })
    }

    fn fresh(&self, found: &Found, arrived: u64) -> bool {
        found.asked != Asked::default() && self.recent(found.asked, arrived)
    }

    /// The freshness rule. An ask that began after the reader arrived is fresh in any case; so a
    /// slow origin cannot keep a reader asking for ever.
    fn recent(&self, asked: Asked, arrived: u64) -> bool {
        if asked.tick > arrived {
            return true;
        }
        match self.dataset.freshness {
            Freshness::Immutable => true,
            Freshness::Strict => false,
            Freshness::Within(bound) => {
                let age = self.clock.now().millis_since(asked.at);
                age.is_some_and(|age| u128::from(age) <= bound.as_millis())
            }
        }
    }

    /// Joins the ask that is under way, or begins one. `None`: look again, it became known.
    fn board(self: &Arc<Self>, name: &ObjectName, arrived: u64, need: Need) -> Option<Arc<Flight>> {
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(name) {
            return Some(flight.clone());
        }
        // An ask may have landed between the reader's look and the lock.
        let found = self.ledger().find(name, self.clock.now());
        if let Some(found) = &found
            && self.fresh(found, arrived)
            && (found.checksums || !need.checksums)
        {
            return None;
        }
        let asked = self.asking();
        let checksums = need.checksums || found.as_ref().is_some_and(|found| found.checksums);
        let (result, receiver) = watch::channel(None);
        let flight = Arc::new(Flight { asked, checksums, result: receiver });
        flights.insert(name.clone(), flight.clone());
        drop(flights);
        let landing = Landing {
            shelf: self.clone(),
            name: name.clone(),
            flight: flight.clone(),
            result,
            landed: false,
        };
        let bare = found.is_none_or(|found| found.bare);
        let (shelf, name) = (self.clone(), name.clone());
        match need.first {
            // Bytes are wanted and none are here: one GET tells the version and brings them.
            Some(first) if bare => {
                self.tasks.spawn(fill::open(shelf, name, asked, first, checksums, landing));
            }
            _ => self.tasks.spawn(ask(shelf, name, asked, landing)),
        }
        Some(flight)
    }

    /// Takes an answer into the table. `None` when it has no usable version.
    pub(crate) fn observe(
        &self,
        name: &ObjectName,
        meta: &Arc<ObjectMeta>,
        asked: Asked,
        checksums: bool,
    ) -> Option<Pin> {
        let block_bytes = self.dataset.block_bytes;
        let Some(pinned) = Pinned::new(&self.dataset.name, name.clone(), meta.clone(), block_bytes)
        else {
            let freed = self.ledger().forget(name, asked);
            self.discard(&freed);
            return None;
        };
        let pinned = Arc::new(pinned);
        let (id, freed) = self.ledger().observe(pinned.clone(), asked, checksums);
        self.discard(&freed);
        Some(Pin { id, pinned })
    }

    /// The origin does not have the object: forgets it.
    pub(crate) fn vanished(&self, name: &ObjectName, asked: Asked) {
        let freed = self.ledger().forget(name, asked);
        self.discard(&freed);
    }
}

/// Asks for the object's state. An unconditional HEAD, not one with If-None-Match: a 304 would
/// leave headers standing that can change without the ETag (a copy of an object onto itself), and
/// costs the same round trip.
pub(crate) async fn ask(shelf: Arc<Shelf>, name: ObjectName, asked: Asked, landing: Landing) {
    let checksums = landing.flight.checksums;
    let request = HeadRequest { name: name.clone(), part_number: None, checksums };
    match shelf.origin.head(request).await {
        Ok(meta) => {
            let meta = Arc::new(meta);
            match shelf.observe(&name, &meta, asked, checksums) {
                Some(_) => landing.known(),
                None => landing.uncacheable(meta),
            }
        }
        Err(error) => {
            if matches!(error, OriginError::NotFound(_)) {
                shelf.vanished(&name, asked);
            }
            landing.failed(shelf.refusal(&name, error));
        }
    }
}
