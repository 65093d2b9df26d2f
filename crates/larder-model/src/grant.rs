//! Who may do what. A [`Permit`] is the only key to the engine, and [`Grants::authorize`] the only
//! place that makes one.

use crate::{Access, Dataset, DatasetName};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Somebody whose signature was verified, or the anonymous user of a node started with
/// `--insecure-anonymous`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(Identity);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Identity {
    Key(Arc<str>),
    Anonymous,
}

impl Principal {
    /// The owner of `access_key`. To be called only where a signature by that key was just verified.
    #[must_use]
    pub fn verified(access_key: &str) -> Self {
        Self(Identity::Key(access_key.into()))
    }

    /// Anybody. To be called only where the node was told to let anybody in.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Identity::Anonymous)
    }

    /// The access key's id, or `anonymous`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Identity::Key(key) => key,
            Identity::Anonymous => "anonymous",
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a request wants to do with a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Read objects and listings.
    Read,
    /// Change them.
    Write,
}

/// The principal has no grant for this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("access key {principal} has no grant to {verb} dataset {dataset}; add it to the key's `allow` list", verb = match .action { Action::Read => "read", Action::Write => "write" })]
pub struct Denied {
    principal: String,
    dataset: DatasetName,
    action: Action,
}

/// The grants of every access key, from the configuration.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    by_key: HashMap<Arc<str>, HashMap<DatasetName, Access>>,
    anonymous: Option<Access>,
}

impl Grants {
    /// Nobody may do anything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the owner of `access_key` into `dataset`.
    pub fn allow(&mut self, access_key: &str, dataset: DatasetName, access: Access) {
        self.by_key.entry(access_key.into()).or_default().insert(dataset, access);
    }

    /// Lets anybody into every dataset. For a node on loopback that was told so.
    pub fn allow_anonymous(&mut self, access: Access) {
        self.anonymous = Some(access);
    }

    /// Permits `action` on `dataset`, if a grant covers it and the dataset allows it at all.
    pub fn authorize(
        &self,
        principal: &Principal,
        dataset: &Arc<Dataset>,
        action: Action,
    ) -> Result<Permit, Denied> {
        let granted = match &principal.0 {
            Identity::Key(key) => {
                self.by_key.get(key).and_then(|grants| grants.get(&dataset.name)).copied()
            }
            Identity::Anonymous => self.anonymous,
        };
        let covers = |access: Access| match action {
            Action::Read => true,
            Action::Write => access == Access::ReadWrite,
        };
        if granted.is_some_and(covers) && covers(dataset.access) {
            return Ok(Permit { dataset: dataset.clone(), principal: principal.clone(), action });
        }
        Err(Denied {
            principal: principal.as_str().to_owned(),
            dataset: dataset.name.clone(),
            action,
        })
    }
}

/// The right to do one thing in one dataset. Every entry point of the engine takes one.
#[derive(Clone, Debug)]
#[must_use]
pub struct Permit {
    dataset: Arc<Dataset>,
    principal: Principal,
    action: Action,
}

impl Permit {
    /// The dataset it is for.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Whose it is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What it allows.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Grants, Principal};
    use crate::{Access, Dataset, DatasetName};
    use std::sync::Arc;

    fn dataset(access: Access) -> Arc<Dataset> {
        let mut dataset = Dataset::example("imagenet", "train-data", "imagenet/");
        dataset.access = access;
        Arc::new(dataset)
    }

    #[test]
    fn nobody_reads_without_a_grant() {
        let dataset = dataset(Access::Read);
        let grants = Grants::new();
        for principal in [Principal::verified("K"), Principal::anonymous()] {
            assert!(grants.authorize(&principal, &dataset, Action::Read).is_err());
        }
    }

    #[test]
    fn a_write_needs_the_grant_and_the_dataset_to_allow_it() {
        let mut grants = Grants::new();
        let name = DatasetName::new("imagenet").unwrap();
        grants.allow("R", name.clone(), Access::Read);
        grants.allow("W", name, Access::ReadWrite);
        let may = |key, access| {
            let principal = Principal::verified(key);
            grants.authorize(&principal, &dataset(access), Action::Write).is_ok()
        };
        assert!(may("W", Access::ReadWrite));
        assert!(!may("W", Access::Read));
        assert!(!may("R", Access::ReadWrite));
    }

    #[test]
    fn a_key_called_anonymous_is_not_the_anonymous_user() {
        let mut grants = Grants::new();
        grants.allow_anonymous(Access::ReadWrite);
        let principal = Principal::verified("anonymous");
        assert!(grants.authorize(&principal, &dataset(Access::Read), Action::Read).is_err());
    }
}
