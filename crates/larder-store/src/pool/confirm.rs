//! Confirmation of writes: foyer acknowledges nothing, so one task per pool waits for its flushes
//! and then looks which blocks its index has.
//!
//! Invariant: a block is confirmed only when foyer's index points to it on the device; the queue
//! before the device does not count.

use super::guard::Guard;
use super::health::Health;
use foyer::Engine;
use larder_model::BlockKey;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Writes that may wait for their confirmation, beside the bound on their bytes.
const QUEUE: usize = 4096;
/// How often the index is looked at while writes are out. foyer's `wait` also waits for the
/// reclaiming of regions, which may take far longer than the write itself.
const LOOK: Duration = Duration::from_millis(1);
/// A device that has not finished a write after this long is probed.
const SLOW: Duration = Duration::from_secs(5);
/// One that has not after this long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The index has it.
    Written,
    /// All that was in the queue is written, but the index does not have it.
    Dropped,
    /// The device did not answer in time.
    TimedOut,
}

/// A write that has been handed to foyer.
pub(crate) struct Pending {
    pub(crate) key: BlockKey,
    pub(crate) fate: oneshot::Sender<Fate>,
    /// Its share of the window; given back with the fate.
    pub(crate) _room: Arc<OwnedSemaphorePermit>,
}

/// Where writes are announced after they were handed to foyer.
pub(crate) fn channel() -> (mpsc::Sender<Pending>, mpsc::Receiver<Pending>) {
    mpsc::channel(QUEUE)
}

/// Tells each write its fate, until all senders are gone and nothing is out.
pub(crate) async fn confirm(
    guard: Arc<Guard>,
    health: Arc<Health>,
    mut announced: mpsc::Receiver<Pending>,
) {
    let mut out = VecDeque::new();
    while let Some(pending) = announced.recv().await {
        out.push_back(pending);
        while !out.is_empty() {
            while let Ok(pending) = announced.try_recv() {
                out.push_back(pending);
            }
            round(&guard, &health, &mut out).await;
        }
    }
}

/// Settles all that is out now.
async fn round(guard: &Guard, health: &Health, out: &mut VecDeque<Pending>) {
    let written = |pending: &Pending| guard.may_contains(pending.key.hash64());
    let mut flushed = guard.wait();
    let slow = sleep(SLOW);
    tokio::pin!(slow);
    let mut probed = false;
    let patience = sleep(PATIENCE);
    tokio::pin!(patience);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let unwritten = tokio::select! {
            biased;
            () = &mut flushed => Some(Fate::Dropped),
            () = &mut patience => Some(Fate::TimedOut),
            () = &mut slow, if !probed => {
                probed = true;
                health.suspect();
                None
            }
            _ = look.tick() => None,
        };
        // foyer writes in the order of submission, so the first that is missing hides no others
        // for longer than its own flush takes.
        while let Some(pending) = out.pop_front_if(|pending| written(pending)) {
            settle(pending, Fate::Written);
        }
        if let Some(unwritten) = unwritten {
            for pending in out.drain(..) {
                let fate = if written(&pending) { Fate::Written } else { unwritten };
                settle(pending, fate);
            }
        }
        if out.is_empty() {
            return;
        }
    }
}

fn settle(pending: Pending, fate: Fate) {
    // Nobody listens when the call of `store` was dropped.
    let _ = pending.fate.send(fate);
}
