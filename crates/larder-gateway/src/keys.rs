//! The key ring: whose signatures are taken. Replaceable while requests run, so that keys rotate.
//!
//! Invariant: a secret leaves this module only towards the two signature checks, the guard's and
//! s3s's, and no `Debug`, no error and no log line of the gateway shows one.

use crate::guard::derive_key;
use arc_swap::{ArcSwap, ArcSwapOption};
use ring::hmac;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Access key ids and their secrets.
pub struct KeyRing(ArcSwap<HashMap<String, Entry>>);

/// One key.
struct Entry {
    secret: SecretKey,
    /// The signing key that was derived last: clients sign for one region, and the day changes once
    /// a day. Goes with the entry, so a replaced secret leaves nothing behind.
    signing: ArcSwapOption<Signing>,
}

/// A signing key and what it is for.
struct Signing {
    date: String,
    region: String,
    key: hmac::Key,
}

impl KeyRing {
    /// A ring of (access key id, secret).
    pub fn new(keys: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(ArcSwap::from_pointee(collect(keys)))
    }

    /// Replaces every key at once. Requests whose signature is being checked finish with the old.
    pub fn replace(&self, keys: impl IntoIterator<Item = (String, String)>) {
        self.0.store(Arc::new(collect(keys)));
    }

    /// The key that signs for a day (`YYYYMMDD`) and a region. `None` when nobody has this access key.
    pub(crate) fn signing_key(
        &self,
        access_key: &str,
        date: &str,
        region: &str,
    ) -> Option<hmac::Key> {
        let ring = self.0.load();
        let entry = ring.get(access_key)?;
        if let Some(signing) = &*entry.signing.load()
            && signing.date == date
            && signing.region == region
        {
            return Some(signing.key.clone());
        }
        let key = derive_key(entry.secret.expose(), date, region);
        let signing =
            Signing { date: date.to_owned(), region: region.to_owned(), key: key.clone() };
        entry.signing.store(Some(Arc::new(signing)));
        Some(key)
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

fn collect(keys: impl IntoIterator<Item = (String, String)>) -> HashMap<String, Entry> {
    let entry = |secret| Entry { secret: SecretKey::from(secret), signing: ArcSwapOption::empty() };
    keys.into_iter().map(|(id, secret)| (id, entry(secret))).collect()
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.0.load().len())
    }
}

/// The ring as s3s asks it.
pub(crate) struct RingAuth(pub(crate) Arc<KeyRing>);

#[async_trait::async_trait]
impl S3Auth for RingAuth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.0.load().get(access_key) {
            Some(entry) => Ok(entry.secret.clone()),
            None => Err(s3_error!(InvalidAccessKeyId)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyRing, RingAuth};
    use s3s::auth::S3Auth;
    use std::sync::Arc;

    #[test]
    fn a_ring_never_prints_a_secret() {
        let ring = KeyRing::new([("ID".to_owned(), "canary-secret".to_owned())]);
        assert_eq!(format!("{ring:?}"), "KeyRing(1 keys)");
    }

    #[tokio::test]
    async fn replaced_keys_count_at_once() {
        let ring = Arc::new(KeyRing::new([("OLD".to_owned(), "a".to_owned())]));
        let auth = RingAuth(ring.clone());
        assert!(auth.get_secret_key("OLD").await.is_ok());
        ring.replace([("NEW".to_owned(), "b".to_owned())]);
        assert!(auth.get_secret_key("OLD").await.is_err());
        assert_eq!(auth.get_secret_key("NEW").await.unwrap().expose(), "b");
    }
}
