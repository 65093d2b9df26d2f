//! What a principal may see of a bucket.
//!
//! | request | bucket has no dataset | principal may read nothing there | principal may read some |
//! |---|---|---|---|
//! | object in a dataset | – | 403 AccessDenied | served if *that* dataset is readable, else 403 |
//! | object in no dataset | 404 NoSuchBucket | 403 AccessDenied | 403 AccessDenied |
//! | HeadBucket, GetBucketLocation | 404 NoSuchBucket | 403 AccessDenied | answered |
//! | ListObjects | 404 NoSuchBucket | 403 AccessDenied | only what is readable, maybe nothing |
//! | ListBuckets | not shown | not shown | shown |
//!
//! A key outside every dataset is 403 and not 404: whether the origin has it is nobody's business
//! here. Under a wildcard dataset every name is a bucket that the origin may or may not have: who
//! may read the wildcard hears the origin's answer, everybody else AccessDenied.

use crate::fault::Fault;
use larder_model::{Action, BucketName, Dataset, Grants, Namespace, ObjectKey, Permit, Principal};
use std::sync::Arc;

/// The datasets and who may do what with them. Replaced as one when the configuration is.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// From a client's names to the origins'.
    pub namespace: Namespace,
    /// Who may do what.
    pub grants: Grants,
}

/// A bucket as one principal sees it. Made only where at least one dataset is readable.
pub(crate) struct View {
    /// The bucket as the client names it.
    pub(crate) bucket: BucketName,
    /// Every dataset of the bucket, longest prefix first, with a permit where it is readable.
    datasets: Vec<(Arc<Dataset>, Option<Permit>)>,
}

impl Rules {
    /// The bucket as `principal` sees it; 404 or 403 as the table says.
    pub(crate) fn view(&self, principal: &Principal, bucket: &BucketName) -> Result<View, Fault> {
        let datasets = self.namespace.bucket(bucket);
        if datasets.is_empty() {
            return Err(Fault::no_such_bucket(bucket.as_str()));
        }
        let permit =
            |dataset: &Arc<Dataset>| self.grants.authorize(principal, dataset, Action::Read).ok();
        let datasets: Vec<_> = datasets.iter().map(|d| (d.clone(), permit(d))).collect();
        if datasets.iter().all(|(_, permit)| permit.is_none()) {
            return Err(Fault::access_denied());
        }
        Ok(View { bucket: bucket.clone(), datasets })
    }
}

impl Rules {
    /// A permit for requests on all of a bucket: the widest dataset's. Every dataset of the bucket
    /// must allow the action, and one of them must cover the bucket whole; 404 or 403 otherwise.
    pub(crate) fn whole(
        &self,
        principal: &Principal,
        bucket: &BucketName,
        action: Action,
    ) -> Result<Permit, Fault> {
        let datasets = self.namespace.bucket(bucket);
        if datasets.is_empty() {
            return Err(Fault::no_such_bucket(bucket.as_str()));
        }
        let mut widest = None;
        for dataset in datasets {
            let permit = self.grants.authorize(principal, dataset, action);
            let permit = permit.map_err(|_| Fault::access_denied())?;
            // An alias is a bucket of its own, whatever prefix it hides.
            if dataset.prefix.is_empty() || dataset.alias.is_some() {
                widest = Some(permit);
            }
        }
        widest.ok_or_else(Fault::access_denied)
    }
}

impl View {
    /// A permit that will do for requests on the bucket as such: the widest dataset's.
    pub(crate) fn permit(&self) -> Option<&Permit> {
        self.datasets.iter().rev().find_map(|(_, permit)| permit.as_ref())
    }

    /// The prefix that an alias hides, if the bucket is one.
    pub(crate) fn hidden_prefix(&self) -> Option<&str> {
        self.datasets.iter().find(|(d, _)| d.alias.is_some()).map(|(d, _)| d.prefix.as_str())
    }

    /// The permit for keys that begin with `text` and with no longer dataset prefix.
    pub(crate) fn covering(&self, text: &str) -> Option<&Permit> {
        let (_, permit) = self.datasets.iter().find(|(d, _)| text.starts_with(&d.prefix))?;
        permit.as_ref()
    }

    /// Whether an object may be shown; `key` is the origin's.
    pub(crate) fn shows_object(&self, key: &ObjectKey) -> bool {
        self.covering(key.as_str()).is_some()
    }

    /// Whether a common prefix may be shown: only if it can contain something readable.
    pub(crate) fn shows_prefix(&self, prefix: &str) -> bool {
        self.covering(prefix).is_some() || self.readable_below(prefix).next().is_some()
    }

    /// Whether every key under `prefix` is readable.
    pub(crate) fn is_clear(&self, prefix: &str) -> bool {
        let denied = |(d, permit): &(Arc<Dataset>, Option<Permit>)| {
            permit.is_none() && d.prefix.starts_with(prefix)
        };
        self.covering(prefix).is_some() && !self.datasets.iter().any(denied)
    }

    /// The prefixes under which a listing of `prefix` may find something: `prefix` itself where
    /// that is readable, else the readable datasets below it, in order and none inside another.
    pub(crate) fn roots(&self, prefix: &str) -> Vec<String> {
        if self.covering(prefix).is_some() {
            return vec![prefix.to_owned()];
        }
        let mut below: Vec<&str> = self.readable_below(prefix).map(|d| d.prefix.as_str()).collect();
        below.sort_unstable();
        let mut roots: Vec<String> = Vec::with_capacity(below.len());
        for prefix in below {
            if !roots.last().is_some_and(|root| prefix.starts_with(root.as_str())) {
                roots.push(prefix.to_owned());
            }
        }
        roots
    }

    /// Where a listing that has reached the unreadable `key` may go on: a position that no readable
    /// key lies between. `None` where the key is readable or lies in no dataset.
    pub(crate) fn skip_from(&self, key: &str) -> Option<String> {
        let (denied, permit) = self.datasets.iter().find(|(d, _)| key.starts_with(&d.prefix))?;
        if permit.is_some() {
            return None;
        }
        let next = self.readable_below(&denied.prefix).map(|d| d.prefix.as_str());
        match next.filter(|prefix| *prefix > key).min() {
            // One character less sorts before the prefix, and keys between the two are filtered.
            Some(prefix) => {
                let mut before = prefix.to_owned();
                before.pop();
                Some(if before.as_str() > key { before } else { key.to_owned() })
            }
            None => Some(after(&denied.prefix)),
        }
    }

    fn readable_below(&self, prefix: &str) -> impl Iterator<Item = &Dataset> {
        let below = move |(dataset, permit): &&(Arc<Dataset>, Option<Permit>)| {
            permit.is_some() && dataset.prefix.starts_with(prefix)
        };
        self.datasets.iter().filter(below).map(|(dataset, _)| &**dataset)
    }
}

/// A position behind every key that begins with `prefix`.
pub(crate) fn after(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use larder_model::{Access, BucketName, Dataset, DatasetName, Grants, Namespace, Principal};
    use std::sync::Arc;

    fn rules(readable: &[&str]) -> Rules {
        let datasets = [
            Dataset::example("all", "data", ""),
            Dataset::example("images", "data", "images/"),
            Dataset::example("train", "data", "images/train/"),
            Dataset::example("val", "data", "images/val/"),
            Dataset::example("text", "data", "text/"),
        ];
        let mut grants = Grants::new();
        for name in readable {
            grants.allow("K", DatasetName::new(name).unwrap(), Access::Read);
        }
        let namespace = Namespace::new(datasets.into_iter().map(Arc::new)).unwrap();
        Rules { namespace, grants }
    }

    fn view(readable: &[&str]) -> super::View {
        let bucket = BucketName::new("data").unwrap();
        let view = rules(readable).view(&Principal::verified("K"), &bucket);
        view.map_err(|fault| fault.status()).unwrap()
    }

    #[test]
    fn a_bucket_is_404_where_it_is_unknown_and_403_where_nothing_is_readable() {
        let principal = Principal::verified("K");
        let status = |rules: &Rules, bucket: &str| {
            let seen = rules.view(&principal, &BucketName::new(bucket).unwrap());
            seen.map(|_| 200).unwrap_or_else(|fault| fault.status().as_u16())
        };
        assert_eq!(status(&rules(&[]), "data"), 403);
        assert_eq!(status(&rules(&[]), "other"), 404);
        assert_eq!(status(&rules(&["val"]), "data"), 200);
    }

    #[test]
    fn only_prefixes_that_can_hold_something_readable_are_shown() {
        let view = view(&["val"]);
        assert!(view.shows_prefix("images/"));
        assert!(view.shows_prefix("images/val/"));
        assert!(view.shows_prefix("images/val/n01/"));
        assert!(!view.shows_prefix("images/train/"));
        assert!(!view.shows_prefix("text/"));
    }

    #[test]
    fn a_listing_goes_straight_to_what_is_readable() {
        assert_eq!(view(&["val", "train"]).roots("images/"), ["images/train/", "images/val/"]);
        assert_eq!(view(&["images", "val", "text"]).roots(""), ["images/", "text/"]);
        assert_eq!(view(&["images"]).roots("images/t"), ["images/t"]);
        assert!(view(&["text"]).roots("images/").is_empty());
    }

    #[test]
    fn a_prefix_is_clear_when_nothing_unreadable_lies_below() {
        assert!(view(&["text"]).is_clear("text/a"));
        assert!(!view(&["images"]).is_clear("images/"));
        assert!(view(&["images", "train", "val"]).is_clear("images/"));
        assert!(!view(&["val"]).is_clear(""));
    }

    #[test]
    fn an_unreadable_dataset_is_skipped_up_to_the_next_readable_key() {
        let mixed = view(&["all", "val"]);
        assert_eq!(mixed.skip_from("images/a").as_deref(), Some("images/val"));
        assert_eq!(mixed.skip_from("images/train/x").unwrap(), super::after("images/train/"));
        assert_eq!(mixed.skip_from("images/w").unwrap(), super::after("images/"));
        assert_eq!(mixed.skip_from("other"), None);
    }
}
