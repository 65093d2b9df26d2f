//! Who uses which secret: handed out at the start and again after each change.
//!
//! Invariant: all holders of a secret get it in one go, and none keeps a copy beside its own.

use crate::admin::Token;
use crate::config::{Config, GivenKeys, Id, OriginKeys, OriginKind, Secret};
use crate::node::Node;
use crate::rotate::Watched;
use larder_gateway::KeyRing;
use larder_origin::{AccessKey, SharedCredentials};
use std::sync::Arc;

/// Everyone that was given secrets.
pub(crate) struct Holders {
    keys: Arc<KeyRing>,
    credentials: Vec<SharedCredentials>,
    token: Token,
}

impl Holders {
    pub(crate) fn new(node: &Node, token: Token) -> Self {
        Self { keys: node.keys.clone(), credentials: node.credentials.clone(), token }
    }

    /// Gives everyone the secrets as last read.
    pub(crate) fn give(&self, config: &Config, watched: &Watched) {
        let text = |secret: &Secret| watched.text(secret).expose().to_owned();
        self.keys.replace(config.keys.iter().map(|key| (key.id.clone(), text(&key.secret))));
        for (credentials, keys) in self.credentials.iter().zip(given_keys(config)) {
            credentials.replace(AccessKey {
                id: match &keys.id {
                    Id::Plain(id) => id.clone(),
                    Id::Found(secret) => text(secret),
                },
                secret: text(&keys.secret),
                session_token: keys.session_token.as_ref().map(text),
            });
        }
        if let Some(token) = &config.admin_token {
            self.token.replace(watched.text(token));
        }
    }
}

/// Every secret of the configuration.
pub(crate) fn all(config: &Config) -> impl Iterator<Item = &Secret> {
    let origins = given_keys(config).flat_map(|keys| {
        let id = match &keys.id {
            Id::Plain(_) => None,
            Id::Found(secret) => Some(secret),
        };
        [id, Some(&keys.secret), keys.session_token.as_ref()].into_iter().flatten()
    });
    let keys = config.keys.iter().map(|key| &key.secret);
    keys.chain(origins).chain(&config.admin_token)
}

/// The keys for origins that the configuration gives, in its order.
fn given_keys(config: &Config) -> impl Iterator<Item = &GivenKeys> {
    config.origins.iter().filter_map(|rule| match &rule.kind {
        OriginKind::S3(rule) => match &rule.keys {
            OriginKeys::Given(keys) => Some(&**keys),
            OriginKeys::Default => None,
        },
        OriginKind::Directory(_) => None,
    })
}
