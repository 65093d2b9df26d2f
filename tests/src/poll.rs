//! Waiting for something to become true, with a deadline and never for a fixed time.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Between two looks. Short beside anything that is waited for, long beside the cost of a look.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `look` gives a value; an error that names `what` when `limit` has passed.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {limit:?}");
        }
        pause().await;
    }
}

/// The pause between two looks, for a loop that keeps a deadline of its own.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
