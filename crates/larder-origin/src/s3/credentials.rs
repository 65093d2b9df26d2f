//! The keys with which an origin is asked, replaceable while it is in use.
//!
//! Invariant: a key is never printed: `Debug` shows none of them.

use super::chain::Chain;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future;
use aws_sdk_s3::config::{Credentials, ProvideCredentials};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A shorter id or secret may be a word of any answer; real ones are longer.
const TELLING_BYTES: usize = 8;

/// An access key with its secret and, for temporary ones, the session token.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The id, as the origin issued it.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The token that goes with temporary keys.
    pub session_token: Option<String>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

/// Access keys that can change while they are in use: the next request, also the next retry of a
/// running one, is signed with the new ones. Clones share the keys.
#[derive(Clone)]
pub struct SharedCredentials(Arc<Keys>);

enum Keys {
    Given(RwLock<AccessKey>),
    Found {
        chain: Box<Chain>,
        /// The keys last used, by which they are recognised in answers.
        last: RwLock<Option<AccessKey>>,
    },
}

impl SharedCredentials {
    /// Starts with this key, which whoever re-reads the configuration can replace.
    #[must_use]
    pub fn new(key: AccessKey) -> Self {
        Self(Arc::new(Keys::Given(RwLock::new(key))))
    }

    /// Keys from where the AWS SDKs look for them (environment, shared files, web identity, container,
    /// instance), looked up when the first request needs them and renewed before they expire. `region`
    /// is where a web identity is exchanged for keys.
    #[must_use]
    pub fn default_chain(region: &str) -> Self {
        Self(Arc::new(Keys::Found { chain: Box::new(Chain::new(region)), last: RwLock::new(None) }))
    }

    /// Signs with this key from now on. Without effect on those of the default chain.
    pub fn replace(&self, key: AccessKey) {
        if let Keys::Given(given) = &*self.0 {
            *given.write().unwrap_or_else(PoisonError::into_inner) = key;
        }
    }

    /// Whether `text` holds any of the keys. Used to keep an origin's answers from giving them away.
    pub(crate) fn occur_in(&self, text: &[u8]) -> bool {
        let Some(key) = self.current() else { return false };
        [Some(key.id), Some(key.secret), key.session_token]
            .into_iter()
            .flatten()
            .filter(|part| part.len() >= TELLING_BYTES)
            .any(|part| text.windows(part.len()).any(|window| window == part.as_bytes()))
    }

    /// The keys to sign the next request with.
    pub(super) async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        match &*self.0 {
            Keys::Given(given) => {
                let key = given.read().unwrap_or_else(PoisonError::into_inner).clone();
                let from = "larder-configuration";
                Ok(Credentials::new(key.id, key.secret, key.session_token, None, from))
            }
            Keys::Found { chain, last } => {
                let found = chain.credentials().await?;
                let key = AccessKey {
                    id: found.access_key_id().to_owned(),
                    secret: found.secret_access_key().to_owned(),
                    session_token: found.session_token().map(str::to_owned),
                };
                *last.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
                Ok(found)
            }
        }
    }

    fn current(&self) -> Option<AccessKey> {
        match &*self.0 {
            Keys::Given(given) => {
                Some(given.read().unwrap_or_else(PoisonError::into_inner).clone())
            }
            Keys::Found { last, .. } => last.read().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl fmt::Debug for SharedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedCredentials(..)")
    }
}

impl ProvideCredentials for SharedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessKey, SharedCredentials};

    #[test]
    fn keys_are_recognised_and_never_printed() {
        let key = AccessKey {
            id: "CANARYID".into(),
            secret: "CANARYSECRET".into(),
            session_token: Some("CANARYTOKEN".into()),
        };
        let shared = SharedCredentials::new(key.clone());
        assert!(!format!("{key:?} {shared:?}").contains("CANARY"));
        assert!(shared.occur_in(b"<AWSAccessKeyId>CANARYID</AWSAccessKeyId>"));
        assert!(shared.occur_in(b"x-amz-security-token:CANARYTOKEN"));
        assert!(!shared.occur_in(b"nothing here"));
        shared.replace(AccessKey {
            id: "OTHER".into(),
            secret: "s3cr3t".into(),
            session_token: None,
        });
        assert!(!shared.occur_in(b"CANARYID"));
    }
}
