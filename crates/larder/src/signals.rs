//! SIGTERM and SIGINT: the first asks the node to drain, a second ends it at once.

use std::process;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// The two signals, held from the start so that none is missed.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on the signals come here.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub(crate) fn hold() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Resolves at the next of them.
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at the next of them.
    pub(crate) async fn end_at_next(mut self) {
        self.next().await;
        tracing::warn!("a second signal: ending at once");
        process::exit(INTERRUPTED);
    }
}
