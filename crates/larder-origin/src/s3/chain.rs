//! Keys from where the AWS SDKs look for them: the environment, the shared files, a web identity, the
//! container's or the instance's service.
//!
//! Invariant: keys are asked for anew before they expire, by one request at a time, and old ones stay
//! in use as long as they are good.

use super::sign::now;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_s3::config::Region;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout};

/// Keys are replaced when less than this is left of them. Those that tell no end may still be
/// replaced where they come from, so they are looked up again after this long.
const EARLY: Duration = Duration::from_secs(300);
/// Between two attempts to replace keys that are still good.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all the places may take together.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The chain, set up when it is first asked.
pub(super) struct Chain {
    region: String,
    provider: OnceCell<SharedCredentialsProvider>,
    found: Mutex<Option<Found>>,
}

#[derive(Clone)]
struct Found {
    credentials: Credentials,
    /// When to look for others.
    renew_at: Instant,
}

impl Chain {
    /// The SDKs' default chain; `region` is where a web identity is exchanged for keys, unless the
    /// environment names another.
    pub(super) fn new(region: &str) -> Self {
        Self { region: region.to_owned(), provider: OnceCell::new(), found: Mutex::new(None) }
    }

    /// Keys that are good now.
    pub(super) async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let mut found = self.found.lock().await;
        let now = now();
        let held = found.as_ref().filter(|found| found.is_good(now)).cloned();
        if let Some(held) = &held
            && Instant::now() < held.renew_at
        {
            return Ok(held.credentials.clone());
        }
        let next = match (self.look_up().await, held) {
            (Ok(credentials), _) => {
                let wait = left(&credentials, now).map_or(EARLY, |left| left.saturating_sub(EARLY));
                Found { credentials, renew_at: Instant::now() + wait.max(PATIENCE) }
            }
            (Err(error), Some(held)) => {
                tracing::warn!(%error, "an origin's keys cannot be renewed yet; the old ones stay");
                Found { renew_at: Instant::now() + PATIENCE, ..held }
            }
            (Err(error), None) => return Err(error),
        };
        let credentials = next.credentials.clone();
        *found = Some(next);
        Ok(credentials)
    }

    async fn look_up(&self) -> Result<Credentials, CredentialsError> {
        let asked = async {
            let provider = self.provider.get_or_init(|| default_chain(&self.region)).await;
            provider.provide_credentials().await
        };
        match timeout(LOOKUP_TIMEOUT, asked).await {
            Ok(result) => result,
            Err(_) => Err(CredentialsError::provider_timed_out(LOOKUP_TIMEOUT)),
        }
    }
}

impl Found {
    fn is_good(&self, now: SystemTime) -> bool {
        left(&self.credentials, now).is_none_or(|left| !left.is_zero())
    }
}

/// How long the keys are good for; `None` for ever.
fn left(credentials: &Credentials, now: SystemTime) -> Option<Duration> {
    let expiry = credentials.expiry()?;
    Some(expiry.duration_since(now).unwrap_or_default())
}

async fn default_chain(region: &str) -> SharedCredentialsProvider {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = ProviderConfig::default()
        .with_http_client(http)
        .with_region(Some(Region::new(region.to_owned())));
    let chain = DefaultCredentialsChain::builder().configure(config).build().await;
    SharedCredentialsProvider::new(chain)
}

#[cfg(test)]
mod tests {
    use super::{Chain, EARLY, PATIENCE};
    use crate::s3::sign::now;
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::error::CredentialsError;
    use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::sync::OnceCell;
    use tokio::time::advance;

    /// Numbers its keys; each is good for so long. Fails while `ok` is over.
    #[derive(Clone, Debug, Default)]
    struct Source {
        asked: Arc<AtomicU32>,
        good_for: Option<Duration>,
        ok: u32,
    }

    impl ProvideCredentials for Source {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            let keys = || {
                let expiry = self.good_for.map(|good_for| now() + good_for);
                Credentials::new(number.to_string(), "secret", None, expiry, "test")
            };
            let result = (number < self.ok).then(keys);
            future::ProvideCredentials::ready(result.ok_or(CredentialsError::not_loaded("gone")))
        }
    }

    fn chain(good_for: Option<Duration>, ok: u32) -> Chain {
        let source = Source { good_for, ok, ..Source::default() };
        Chain {
            provider: OnceCell::from(SharedCredentialsProvider::new(source)),
            ..Chain::new("us-east-1")
        }
    }

    async fn id(chain: &Chain) -> Option<String> {
        chain.credentials().await.ok().map(|keys| keys.access_key_id().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_renewed_before_they_expire() {
        let chain = chain(Some(2 * EARLY), 10);
        for (step, expected) in [(0, "0"), (290, "0"), (11, "1"), (0, "1")] {
            advance(Duration::from_secs(step)).await;
            assert_eq!(id(&chain).await.as_deref(), Some(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_without_an_end_are_looked_up_again() {
        let chain = chain(None, 10);
        assert_eq!(id(&chain).await.as_deref(), Some("0"));
        advance(EARLY + Duration::from_secs(1)).await;
        assert_eq!(id(&chain).await.as_deref(), Some("1"));
    }

    #[tokio::test(start_paused = true)]
    async fn old_keys_stay_while_they_are_good_and_new_ones_cannot_be_had() {
        let good = chain(Some(EARLY), 1);
        assert_eq!(id(&good).await.as_deref(), Some("0"));
        advance(PATIENCE).await;
        assert_eq!(id(&good).await.as_deref(), Some("0"));
        let over = chain(Some(Duration::ZERO), 1);
        assert_eq!(id(&over).await.as_deref(), Some("0"));
        assert_eq!(id(&over).await, None);
        assert_eq!(id(&chain(None, 0)).await, None);
    }
}
