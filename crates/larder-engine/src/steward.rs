//! The steward of a dataset: tells the policy what happened, and makes the room it wishes to make.
//! Off the response path: no byte to a client waits for it.

use crate::ledger::Freed;
use crate::shelf::Shelf;
use crate::tasks::stopped;
use larder_model::{Handle, Place, Policy};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// Events that a policy is told at once (DESIGN §4).
const BATCH: usize = 256;

/// How long the first event of a batch waits for company.
const GATHER: Duration = Duration::from_millis(2);

/// How many victims are asked for at once.
const MOST_VICTIMS: usize = 256;

/// Runs until `stop` turns true.
pub(crate) async fn run(
    shelf: Arc<Shelf>,
    mut policy: Box<dyn Policy>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            () = shelf.stir.notified() => {}
        }
        if shelf.ledger().journal.len() < BATCH {
            tokio::time::sleep(GATHER).await;
        }
        round(&shelf, policy.as_mut()).await;
    }
}

/// One round: everything that happened, then room. Lets others run after each batch: a round may be
/// long, and a policy slow.
pub(crate) async fn round(shelf: &Shelf, policy: &mut dyn Policy) {
    tell(shelf, policy).await;
    while let Some(need) = need(shelf) {
        let freed = make_room(shelf, policy, need).await;
        tell(shelf, policy).await;
        if freed == 0 {
            break;
        }
    }
    let ledger = shelf.ledger();
    shelf.meters.cached_bytes.set(ledger.resident_bytes() as i64);
    shelf.meters.cached_objects.set(ledger.resident_objects() as i64);
}

/// Hands the journal to the policy, batch by batch.
async fn tell(shelf: &Shelf, policy: &mut dyn Policy) {
    let batch = shelf.ledger().journal.take();
    shelf.meters.dropped_events.inc_by(batch.dropped);
    let now = shelf.clock.now().0;
    // Entries come before the first event that names them, whichever batch that is in.
    let mut entries = batch.entries.as_slice();
    for events in batch.events.chunks(BATCH) {
        let decisions = policy.on_batch(now, entries, events);
        entries = &[];
        shelf.meters.batches.inc();
        let refused =
            |(handle, place): &(Handle, Place)| (*place == Place::Skip).then_some(*handle);
        {
            let mut ledger = shelf.ledger();
            decisions.place.iter().filter_map(refused).for_each(|handle| ledger.refuse(handle));
        }
        tokio::task::yield_now().await;
    }
}

/// How many bytes this dataset should let go of.
fn need(shelf: &Shelf) -> Option<u64> {
    let starved = shelf.starved.swap(0, Ordering::AcqRel);
    if !shelf.evicts() {
        return (starved > 0).then_some(starved);
    }
    let excess = shelf.pool.excess()?;
    // In a shared pool, each dataset gives in proportion to what it holds.
    let own = shelf.ledger().resident_bytes() as f64;
    let share = excess as f64 * own / shelf.pool.used().max(1) as f64;
    (share >= 1.0).then_some(share.ceil() as u64)
}

/// Evicts what the policy nominates, until `need` bytes are free. Tells how many bytes went.
async fn make_room(shelf: &Shelf, policy: &mut dyn Policy, need: u64) -> u64 {
    let mut freed = 0;
    while freed < need {
        let victims = policy.victims(shelf.clock.now().0, need - freed, MOST_VICTIMS);
        let gone = evict(shelf, &victims, need - freed);
        shelf.evicted(&gone);
        let bytes: u64 = gone.iter().map(|block| block.bytes).sum();
        freed += bytes;
        // The removals are what makes the next nomination another one.
        tell(shelf, policy).await;
        if bytes == 0 {
            break;
        }
    }
    freed
}

fn evict(shelf: &Shelf, victims: &[Handle], need: u64) -> Vec<Freed> {
    let mut ledger = shelf.ledger();
    let mut gone: Vec<Freed> = Vec::new();
    let mut freed = 0;
    for victim in victims {
        if freed >= need {
            break;
        }
        match ledger.evict(*victim) {
            Some(block) => {
                freed += block.bytes;
                gone.push(block);
            }
            None => shelf.meters.refused_victims.inc(),
        }
    }
    gone
}
