//! Where a passed request goes: the grant that it needs, and the origin's names for the client's.

use crate::fault::Fault;
use crate::gateway::Call;
use crate::operation::{Needs, Row, Shows, Target};
use larder_model::{Action, BucketName, Dataset, ObjectKey, Permit};
use std::sync::Arc;

/// A bucket or object at the origin, and the right to do with it what the operation does.
pub(super) struct Place {
    pub(super) permit: Permit,
    /// The origin's.
    pub(super) bucket: BucketName,
    /// The origin's.
    pub(super) key: Option<ObjectKey>,
    pub(super) alias: Option<Alias>,
}

/// What an alias hides.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    /// The bucket as clients know it.
    pub(super) bucket: BucketName,
    /// As the origin knows it.
    pub(super) origin_bucket: BucketName,
    /// What the origin's keys begin with.
    pub(super) hidden: String,
}

impl Alias {
    /// What a dataset hides, if it is one of an alias.
    pub(super) fn of(dataset: &Dataset, bucket: &BucketName) -> Option<Self> {
        dataset.alias.as_ref()?;
        Some(Self {
            bucket: bucket.clone(),
            origin_bucket: dataset.origin_bucket(bucket),
            hidden: dataset.prefix.clone(),
        })
    }
}

impl Place {
    /// Resolves and authorises. `seen` becomes the dataset as soon as it is known, for the metrics.
    pub(super) fn find(
        call: &Call<'_>,
        row: &Row,
        target: &Target,
        seen: &mut Option<Arc<Dataset>>,
    ) -> Result<Self, Fault> {
        let (bucket, key) = match target {
            Target::Service => return Err(Fault::access_denied()),
            Target::Bucket(bucket) => (bucket, None),
            Target::Object(bucket, key) => (bucket, Some(key)),
        };
        let rules = call.rules.load();
        let permit = match (row.needs, key) {
            (Needs::ReadKey, Some(key)) => permit_key(call, bucket, key, Action::Read, seen)?,
            (Needs::WriteKey, Some(key)) => permit_key(call, bucket, key, Action::Write, seen)?,
            (Needs::ReadPrefix, None) => permit_prefix(call, bucket)?,
            (Needs::ReadBucket, _) => rules.whole(call.principal, bucket, Action::Read)?,
            (Needs::WriteBucket, _) => rules.whole(call.principal, bucket, Action::Write)?,
            (Needs::WriteEvery, _) => {
                let permit = rules.whole(call.principal, bucket, Action::Write)?;
                if permit.dataset().bucket != larder_model::BucketRule::Every {
                    return Err(Fault::denied(
                        "Access Denied: this request may name other buckets, so it needs a grant to \
                         write every bucket of the origin",
                    ));
                }
                permit
            }
            _ => return Err(Fault::access_denied()),
        };
        let dataset = permit.dataset().clone();
        let alias = Alias::of(&dataset, bucket);
        if alias.is_some() && row.shows == Shows::Hidden {
            let text = format!(
                "Access Denied: {} would show names that this bucket, which is an alias, hides",
                row.name
            );
            return Err(Fault::denied(text));
        }
        let key = match key {
            Some(key) => Some(origin_key(alias.as_ref(), key)?),
            None => None,
        };
        let bucket = dataset.origin_bucket(bucket);
        *seen = Some(dataset);
        Ok(Self { permit, bucket, key, alias })
    }
}

/// The origin's key for a client's.
pub(super) fn origin_key(alias: Option<&Alias>, key: &ObjectKey) -> Result<ObjectKey, Fault> {
    match alias {
        None => Ok(key.clone()),
        Some(alias) => ObjectKey::new(format!("{}{key}", alias.hidden)).map_err(|_| {
            Fault::bad("KeyTooLongError", "Your key is too long").with("MaxSizeAllowed", "1024")
        }),
    }
}

/// The permit for a key, as for GetObject.
pub(super) fn permit_key(
    call: &Call<'_>,
    bucket: &BucketName,
    key: &ObjectKey,
    action: Action,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Permit, Fault> {
    let rules = call.rules.load();
    let Some(resolved) = rules.namespace.resolve(bucket, key, None) else {
        let known = !rules.namespace.bucket(bucket).is_empty();
        return Err(match known {
            true => Fault::access_denied(),
            false => Fault::no_such_bucket(bucket.as_str()),
        });
    };
    let permit = rules.grants.authorize(call.principal, &resolved.dataset, action);
    let permit = permit.map_err(|_| Fault::access_denied())?;
    *seen = Some(resolved.dataset);
    Ok(permit)
}

/// The permit for everything under the request's prefix.
fn permit_prefix(call: &Call<'_>, bucket: &BucketName) -> Result<Permit, Fault> {
    let view = call.rules.load().view(call.principal, bucket)?;
    let hidden = view.hidden_prefix().unwrap_or_default();
    let prefix = format!("{hidden}{}", call.query.get("prefix").unwrap_or_default());
    match view.covering(&prefix) {
        Some(permit) if view.is_clear(&prefix) => Ok(permit.clone()),
        _ => Err(Fault::denied(
            "Access Denied: this listing needs a grant to read everything under its prefix",
        )),
    }
}
