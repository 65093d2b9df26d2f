//! Pinning: from a name to one version of the object, as fresh as the dataset demands.
//!
//! Asks for one name are coalesced: while one is under way, others wait for it. Whether its answer
//! is good enough for a waiter is decided by the freshness rule, not by luck: a reader of a strict
//! dataset accepts only an ask that began after the reader arrived, and so does every reader of a
//! name that is being written (see `fence`).

use crate::fill::FirstRange;
use crate::ledger::{Asked, Found, NOWHERE};
use crate::shelf::{Pin, Shelf, lock};
use crate::{ReadError, fill};
use larder_model::{Fetched, Freshness, HeadRequest, ObjectMeta, ObjectName, OriginError, Pinned};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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
pub(crate) enum Outcome {
    /// This version; `asked` tells whether the origin was asked on this reader's behalf.
    Pinned { pin: Pin, asked: bool },
    /// The object has no usable version: it passes through uncached. The answer to the ask, where it
    /// brought bytes and no other reader took it.
    Uncacheable(Arc<ObjectMeta>, Option<Fetched>),
}

/// Asks under way: the board.
pub(crate) type Flights = HashMap<ObjectName, Arc<Flight>>;

/// One ask under way.
pub(crate) struct Flight {
    asked: Asked,
    checksums: bool,
    /// A write was answered since it began: what it learns is not kept.
    barred: AtomicBool,
    result: watch::Receiver<Option<Landed>>,
}

impl Flight {
    /// Its answer may be older than what was written meanwhile. Whoever calls this takes it off the
    /// board before and clears the table after, so nothing that it learned stays.
    pub(crate) fn bar(&self) {
        self.barred.store(true, Ordering::Release);
    }

    fn barred(&self) -> bool {
        self.barred.load(Ordering::Acquire)
    }

    /// Whether it asks for stored checksums.
    pub(crate) fn checksums(&self) -> bool {
        self.checksums
    }
}

/// What an ask learned.
#[derive(Clone)]
enum Learned {
    /// This version, with or without its stored checksums.
    Pinned { pin: Pin, checksums: bool },
    /// No usable version. The answer is for one reader; a lock around it makes it shareable.
    Uncacheable { meta: Arc<ObjectMeta>, first: Arc<Mutex<Option<Fetched>>> },
}

type Landed = Result<Learned, ReadError>;

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
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// The object is of this version.
    pub(crate) fn known(self, pin: Pin, checksums: bool) {
        self.land(Ok(Learned::Pinned { pin, checksums }));
    }

    /// The object cannot be cached. `first` is the answer that told so, if it brought bytes.
    pub(crate) fn uncacheable(self, meta: Arc<ObjectMeta>, first: Option<Fetched>) {
        let first = Arc::new(Mutex::new(first));
        self.land(Ok(Learned::Uncacheable { meta, first }));
    }

    /// The origin refused to tell. What it does not have is forgotten.
    pub(crate) fn refused(self, name: &ObjectName, error: OriginError) {
        if matches!(error, OriginError::NotFound(_)) {
            self.shelf.vanished(name, &self.flight);
        }
        let error = self.shelf.refusal(name, error);
        self.failed(error);
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
            // A reader who arrived after the ask began finds its answer in the table, if it is good
            // enough and no write was answered meanwhile: only the table knows of writes. For any
            // other the answer is good as it is.
            let good = flight.asked.tick > arrived;
            match landed {
                Some(Ok(Learned::Pinned { pin, checksums }))
                    if good && (checksums || !need.checksums) =>
                {
                    return Ok(Outcome::Pinned { pin, asked });
                }
                Some(Ok(Learned::Uncacheable { meta, first })) if good => {
                    let usable = flight.checksums || !need.checksums;
                    let first = lock(&first).take().filter(|_| usable);
                    return Ok(Outcome::Uncacheable(meta, first));
                }
                // "Not there" is an answer like any other: it must be fresh, too.
                Some(Err(ReadError::Origin(_))) if !good => {}
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => {
                    let reason = "the task that asked it ended early".to_owned();
                    let origin = self.origin.name().clone();
                    return Err(ReadError::Unreachable { origin, reason });
                }
            }
        }
    }

    /// Whether nothing of an object is here that an ask could leave to be read.
    pub(crate) fn is_bare(&self, name: &ObjectName) -> bool {
        let found = self.ledger().find(name, self.clock.now());
        found.is_none_or(|found| found.bare)
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

    /// An ask that began after the reader arrived is fresh in any case; so a slow origin cannot
    /// keep a reader asking for ever.
    fn fresh(&self, found: &Found, arrived: u64) -> bool {
        let later = found.asked.tick > arrived;
        found.asked != Asked::default() && (later || (!found.fenced && self.recent(found.asked)))
    }

    /// The dataset's freshness rule.
    fn recent(&self, asked: Asked) -> bool {
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
        let checksums = need.checksums || found.as_ref().is_some_and(|found| found.checksums);
        let landing = self.take_off(&mut flights, name, checksums);
        drop(flights);
        let flight = landing.flight.clone();
        let bare = found.is_none_or(|found| found.bare);
        let (shelf, name) = (self.clone(), name.clone());
        match need.first {
            // Bytes are wanted and none are here: one GET tells the version and brings them.
            Some(first) if bare => self.tasks.spawn(fill::open(shelf, name, first, landing)),
            _ => self.tasks.spawn(ask(shelf, name, landing)),
        }
        Some(flight)
    }

    /// Puts an ask that begins now on the board, if there is none for the name.
    pub(crate) fn begin(self: &Arc<Self>, name: &ObjectName) -> Option<Landing> {
        let mut flights = lock(&self.flights);
        (!flights.contains_key(name)).then(|| self.take_off(&mut flights, name, false))
    }

    fn take_off(
        self: &Arc<Self>,
        flights: &mut Flights,
        name: &ObjectName,
        checksums: bool,
    ) -> Landing {
        let (result, receiver) = watch::channel(None);
        let barred = AtomicBool::new(false);
        let flight = Arc::new(Flight { asked: self.asking(), checksums, barred, result: receiver });
        flights.insert(name.clone(), flight.clone());
        Landing { shelf: self.clone(), name: name.clone(), flight, result, landed: false }
    }

    /// Takes an answer into the table, unless a write was answered since it was asked for. `None`
    /// when it has no usable version.
    pub(crate) fn observe(
        &self,
        name: &ObjectName,
        meta: &Arc<ObjectMeta>,
        flight: &Flight,
        checksums: bool,
    ) -> Option<Pin> {
        let block_bytes = self.dataset.block_bytes;
        let Some(pinned) = Pinned::new(&self.dataset.name, name.clone(), meta.clone(), block_bytes)
        else {
            self.vanished(name, flight);
            return None;
        };
        let pinned = Arc::new(pinned);
        let mut ledger = self.ledger();
        // Looked at under the lock under which a write clears the table: either it finds what is
        // put here, or this finds the bar.
        if flight.barred() {
            return Some(Pin { id: NOWHERE, pinned });
        }
        let (id, freed) = ledger.observe(pinned.clone(), flight.asked, checksums);
        drop(ledger);
        self.discard(&freed);
        Some(Pin { id, pinned })
    }

    /// The origin does not have the object, or no version of it to rely on: forgets it.
    pub(crate) fn vanished(&self, name: &ObjectName, flight: &Flight) {
        let mut ledger = self.ledger();
        let freed = match flight.barred() {
            true => Vec::new(),
            false => ledger.forget(name, flight.asked),
        };
        drop(ledger);
        self.discard(&freed);
    }
}

/// Asks for the object's state. An unconditional HEAD, not one with If-None-Match: a 304 would
/// leave headers standing that can change without the ETag (a copy of an object onto itself), and
/// costs the same round trip.
pub(crate) async fn ask(shelf: Arc<Shelf>, name: ObjectName, landing: Landing) {
    let checksums = landing.flight.checksums;
    let request = HeadRequest { name: name.clone(), part_number: None, checksums };
    match shelf.origin.head(request).await {
        Ok(meta) => {
            let meta = Arc::new(meta);
            match shelf.observe(&name, &meta, &landing.flight, checksums) {
                Some(pin) => landing.known(pin, checksums),
                None => landing.uncacheable(meta, None),
            }
        }
        Err(error) => landing.refused(&name, error),
    }
}
