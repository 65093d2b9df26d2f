//! The key ring: whose signatures are taken. Replaceable while requests run, so that keys rotate.
//!
//! Invariant: a secret leaves this module only towards s3s's signature check, and no `Debug`, no
//! error and no log line of the gateway shows one.

use arc_swap::ArcSwap;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Access key ids and their secrets.
pub struct KeyRing(ArcSwap<HashMap<String, SecretKey>>);

impl KeyRing {
    /// A ring of (access key id, secret).
    pub fn new(keys: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(ArcSwap::from_pointee(collect(keys)))
    }

    /// Replaces every key at once. Requests whose signature is being checked finish with the old.
    pub fn replace(&self, keys: impl IntoIterator<Item = (String, String)>) {
        self.0.store(Arc::new(collect(keys)));
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

fn collect(keys: impl IntoIterator<Item = (String, String)>) -> HashMap<String, SecretKey> {
    keys.into_iter().map(|(id, secret)| (id, SecretKey::from(secret))).collect()
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
            Some(secret) => Ok(secret.clone()),
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
