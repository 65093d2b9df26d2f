//! Bodies that nobody wants. A client that sends all before it listens would find its connection reset
//! before it has heard why; so its bytes are taken for a while, behind the answer.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a body is read for nobody, how long for nothing, and how much of it.
const PATIENCE: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(500);
const MAX_BYTES: usize = 8 << 20;

/// The tasks that read them; each ends with its connection at the latest, all with this.
#[derive(Default)]
pub(crate) struct Linger(Mutex<JoinSet<()>>);

impl Linger {
    /// Begins to read a body behind the answer.
    pub(crate) fn read(&self, body: Incoming) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // Time out or not: the body is given up.
            let _ = timeout(PATIENCE, drain(body)).await;
        });
    }
}

async fn drain(mut body: Incoming) {
    let mut left = MAX_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(QUIET, body.frame()).await {
        let came = frame.data_ref().map_or(0, bytes::Bytes::len);
        match left.checked_sub(came) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
