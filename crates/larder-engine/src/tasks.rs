//! The owner of the engine's tasks: fills outlive the readers that began them, so somebody else
//! must wait for them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// Counts live tasks and tells when there is none.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    live: AtomicUsize,
    ended: Notify,
}

struct Live(Tasks);

impl Drop for Live {
    fn drop(&mut self) {
        if self.0.0.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.0.ended.notify_waiters();
        }
    }
}

impl Tasks {
    /// Runs `task` to its end, whatever becomes of the caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.live.fetch_add(1, Ordering::AcqRel);
        let live = Live(self.clone());
        tokio::spawn(async move {
            let _live = live;
            task.await;
        });
    }

    /// Returns when no task is alive.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.0.live.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// Returns when the engine is told to stop, or is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The guard that a success carries must not live across the caller's other branches.
    drop(stop.wait_for(|stop| *stop).await);
}
