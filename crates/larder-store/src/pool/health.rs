//! Whether a pool's SSD can be trusted with reads and writes.
//!
//! foyer tells of failed reads only; a failed write is logged there and looks like a full buffer from
//! here. So whatever is suspicious (an error, a lost write, a checksum, no answer in time) calls for
//! a probe ([`super::probe`]). A device that keeps failing is left alone, so that no client waits
//! for it, and is probed until it answers again.
//!
//! | state | reads | writes | entered when |
//! |---|---|---|---|
//! | normal | yes | yes | a probe succeeds, the engine is sound, and nothing was suspicious for [`WINDOW`] |
//! | unstable | yes | no | 3 failed reads, a time-out or 30 corrupt blocks within [`WINDOW`]; a failed write; a failed probe; a probe succeeds while down |
//! | down | no | no | 10 failed reads, 2 time-outs or 100 corrupt blocks within [`WINDOW`]; 3 probes in a row fail other than for want of room, or one hangs |
//!
//! After a failed write, and whenever the device was down, foyer's engine is *broken*: it is begun
//! anew from its files ([`super::life`]) before anything is written again.

use crate::metrics::{Cause, PoolMetrics};
use larder_model::PoolName;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long something suspicious is remembered.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// What a failed read, one that did not end in time, and a corrupt block weigh, and the sums at
/// which the state changes.
const FAILED: u32 = 10;
const TIMED_OUT: u32 = 50;
const CORRUPT: u32 = 1;
const UNSTABLE: u32 = 30;
const DOWN: u32 = 100;
/// Failed probes in a row at which the device is down.
const PROBES: u32 = 3;

/// What the device is fit for. The numbers are those of the metric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum State {
    Normal = 0,
    Unstable = 1,
    Down = 2,
}

/// What a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    Fine,
    /// No room, or a file system that takes no writes: what is there can still be read.
    NoSpace,
    /// The folder is gone. Files that are open still work.
    Gone,
    Failed,
    /// It did not end in time.
    Hung,
}

/// The health of one pool's device.
#[derive(Debug)]
pub(crate) struct Health {
    pub(super) pool: PoolName,
    pub(super) folder: PathBuf,
    pub(super) metrics: PoolMetrics,
    /// The same as in `record`, to be read without the lock.
    state: AtomicU8,
    record: Mutex<Record>,
    broken: watch::Sender<bool>,
    pub(super) suspicion: Notify,
}

#[derive(Debug)]
struct Record {
    state: State,
    faults: VecDeque<Fault>,
    /// Probes that failed in a row.
    failed_probes: u32,
    gone: bool,
    broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    at: Instant,
    weight: u32,
    /// Whether a probe found it: that says nothing about what is there already.
    probed: bool,
}

impl Health {
    pub(super) fn new(pool: &PoolName, folder: &Path, metrics: PoolMetrics) -> Arc<Self> {
        let record = Record {
            state: State::Normal,
            faults: VecDeque::new(),
            failed_probes: 0,
            gone: false,
            broken: false,
        };
        metrics.state(State::Normal);
        Arc::new(Self {
            pool: pool.clone(),
            folder: folder.to_owned(),
            metrics,
            state: AtomicU8::new(State::Normal as u8),
            record: Mutex::new(record),
            broken: watch::Sender::new(false),
            suspicion: Notify::new(),
        })
    }

    pub(super) fn may_read(&self) -> bool {
        self.state.load(Ordering::Acquire) != State::Down as u8
    }

    pub(super) fn may_write(&self) -> bool {
        self.state.load(Ordering::Acquire) == State::Normal as u8
    }

    /// Whether foyer's engine must be begun anew before anything is written.
    pub(crate) fn broken(&self) -> bool {
        *self.broken.borrow()
    }

    /// Waits until it must be.
    pub(crate) async fn break_down(&self) {
        // Cannot fail: the sender is borrowed.
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }

    /// A read failed.
    pub(super) fn failed(&self) {
        self.fault(FAILED);
    }

    /// A read did not end in time.
    pub(super) fn timed_out(&self) {
        self.fault(TIMED_OUT);
    }

    /// Stored bytes were not what was stored.
    pub(super) fn corrupt(&self) {
        self.fault(CORRUPT);
    }

    /// A write failed: foyer's engine is not sound any more.
    pub(crate) fn write_failed(&self) {
        let now = Instant::now();
        self.change(|record| {
            record.broken = true;
            record.judge(now);
        });
        self.suspect();
    }

    /// Something took long, or got lost. Whether the device is to blame, a probe will tell.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// foyer's engine was begun anew.
    pub(super) fn mended(&self) {
        let now = Instant::now();
        self.change(|record| {
            record.broken = false;
            record.judge(now);
        });
    }

    fn fault(&self, weight: u32) {
        let at = Instant::now();
        self.change(|record| {
            record.faults.push_back(Fault { at, weight, probed: false });
            record.judge(at);
        });
        self.suspect();
    }

    fn change(&self, how: impl FnOnce(&mut Record)) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let before = record.state;
        how(&mut record);
        let (after, broken) = (record.state, record.broken);
        self.state.store(after as u8, Ordering::Release);
        self.broken.send_if_modified(|known| std::mem::replace(known, broken) != broken);
        drop(record);
        if before == after {
            return;
        }
        self.metrics.state(after);
        let (pool, folder) = (&self.pool, self.folder.display());
        match after {
            State::Normal => tracing::info!(%pool, %folder, "the SSD is back in use"),
            State::Unstable => tracing::warn!(
                %pool, %folder, "the SSD is unstable: it is read, but nothing new is written to it"
            ),
            State::Down => tracing::error!(
                %pool, %folder, "the SSD is down: it is left alone until a probe succeeds"
            ),
        }
    }

    /// What a probe found, told to the record and the metrics.
    pub(super) fn probed(&self, probe: Probe) {
        match probe {
            Probe::NoSpace => self.metrics.count(Cause::NoSpace),
            Probe::Failed => self.metrics.count(Cause::Io),
            Probe::Hung => self.metrics.count(Cause::Timeout),
            Probe::Fine | Probe::Gone => {}
        }
        let now = Instant::now();
        let mut vanished = false;
        self.change(|record| {
            vanished = probe == Probe::Gone && !record.gone;
            record.probed(probe, now);
        });
        if vanished {
            self.metrics.count(Cause::Gone);
            tracing::error!(
                pool = %self.pool, folder = %self.folder.display(),
                "the pool's folder was removed while in use: it works on until a write fails or \
                 the process ends, and then starts cold"
            );
        }
    }

    pub(super) fn state(&self) -> State {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).state
    }
}

impl Record {
    fn probed(&mut self, probe: Probe, now: Instant) {
        self.gone = probe == Probe::Gone;
        self.failed_probes = match probe {
            Probe::Fine | Probe::Gone | Probe::NoSpace => 0,
            Probe::Failed => self.failed_probes + 1,
            Probe::Hung => PROBES,
        };
        let unstable = Fault { at: now, weight: UNSTABLE, probed: true };
        match probe {
            Probe::Fine if self.state == State::Down && !self.broken => {
                self.faults.clear();
                self.faults.push_back(unstable);
                self.state = State::Unstable;
            }
            Probe::Fine | Probe::Gone => {}
            Probe::NoSpace | Probe::Failed | Probe::Hung => self.faults.push_back(unstable),
        }
        self.judge(now);
    }

    /// Which state the faults of the window call for.
    fn judge(&mut self, now: Instant) {
        self.faults.retain(|fault| now.duration_since(fault.at) < WINDOW);
        // Enough to be down is enough to know.
        while self.faults.len() > DOWN as usize {
            self.faults.pop_front();
        }
        let sum: u32 = self.faults.iter().map(|fault| fault.weight).sum();
        let read = self.faults.iter().filter(|fault| !fault.probed);
        let unreadable: u32 = read.map(|fault| fault.weight).sum();
        let before = self.state;
        self.state = match before {
            // Only a probe leads out of it.
            State::Down => State::Down,
            _ if unreadable >= DOWN || self.failed_probes >= PROBES => State::Down,
            _ if self.broken || sum >= UNSTABLE => State::Unstable,
            State::Unstable if sum > 0 => State::Unstable,
            _ => State::Normal,
        };
        // What failed may be the files that are open, while new ones work.
        self.broken |= before != State::Down && self.state == State::Down;
    }
}

#[cfg(test)]
mod tests {
    use super::{Health, Probe, State, WINDOW};
    use crate::metrics::{Cause, Metrics};
    use larder_model::PoolName;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    fn health() -> Arc<Health> {
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let pool = PoolName::shared();
        Health::new(&pool, Path::new("/nowhere"), metrics.pool(&pool))
    }

    #[tokio::test(start_paused = true)]
    async fn errors_that_lie_far_apart_change_nothing() {
        let health = health();
        for _ in 0..20 {
            health.failed();
            tokio::time::advance(WINDOW / 2).await;
            assert_eq!(health.state(), State::Normal);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_errors_stop_writes_then_reads() {
        let health = health();
        for n in 1..=10 {
            health.failed();
            let expected = match n {
                1..3 => State::Normal,
                3..10 => State::Unstable,
                _ => State::Down,
            };
            assert_eq!(health.state(), expected, "{n}");
            assert_eq!(health.may_write(), expected == State::Normal);
            assert_eq!(health.may_read(), expected != State::Down);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_is_down_comes_back_by_way_of_unstable() {
        let health = health();
        (0..10).for_each(|_| health.failed());
        tokio::time::advance(WINDOW * 10).await;
        health.corrupt();
        assert_eq!(health.state(), State::Down, "only a probe leads out");
        health.probed(Probe::Fine);
        assert_eq!(health.state(), State::Down, "the engine is still the old one");
        health.mended();
        health.probed(Probe::Fine);
        assert_eq!(health.state(), State::Unstable);
        tokio::time::advance(WINDOW - Duration::from_secs(1)).await;
        health.probed(Probe::Fine);
        assert_eq!(health.state(), State::Unstable);
        tokio::time::advance(Duration::from_secs(1)).await;
        health.probed(Probe::Fine);
        assert_eq!(health.state(), State::Normal);
        assert!(health.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_device_is_read_and_a_failing_one_is_left_alone() {
        let full = health();
        (0..10).for_each(|_| full.probed(Probe::NoSpace));
        assert_eq!(full.state(), State::Unstable);
        assert_eq!(full.metrics.counted(Cause::NoSpace), 10);
        let failing = health();
        (0..2).for_each(|_| failing.probed(Probe::Failed));
        assert_eq!(failing.state(), State::Unstable);
        failing.probed(Probe::Failed);
        assert_eq!(failing.state(), State::Down);
        assert_eq!(failing.metrics.counted(Cause::Io), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_lies_weighs_less_than_one_that_fails() {
        let health = health();
        (0..29).for_each(|_| health.corrupt());
        assert_eq!(health.state(), State::Normal);
        health.corrupt();
        assert_eq!(health.state(), State::Unstable);
        (0..70).for_each(|_| health.corrupt());
        assert_eq!(health.state(), State::Down);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_stops_writes_until_the_engine_is_begun_anew() {
        let health = health();
        health.write_failed();
        assert!(health.broken() && health.may_read() && !health.may_write());
        health.break_down().await;
        tokio::time::advance(WINDOW * 10).await;
        health.probed(Probe::Fine);
        assert_eq!(health.state(), State::Unstable);
        health.mended();
        assert_eq!(health.state(), State::Normal);
        assert!(!health.broken());
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_hangs_is_soon_left_alone() {
        let slow = health();
        slow.timed_out();
        assert_eq!(slow.state(), State::Unstable);
        slow.timed_out();
        assert_eq!(slow.state(), State::Down);
        let hanging = health();
        hanging.probed(Probe::Hung);
        assert_eq!(hanging.state(), State::Down);
        assert_eq!(hanging.metrics.counted(Cause::Timeout), 1);
    }
}
