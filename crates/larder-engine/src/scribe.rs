//! The scribe: writes what changed in the object tables to the catalog, and reads it back at the
//! start. The cache works without it; a restart is then cold.

use crate::ledger::marked;
use crate::shelf::Shelf;
use crate::steward;
use crate::tasks::stopped;
use larder_model::{BucketRule, Catalog, CatalogChange, ObjectRecord, Pinned, Policy};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often changes are written. What was confirmed since the last time is cold after a kill.
const INTERVAL: Duration = Duration::from_millis(250);

/// How many blocks are looked up in the store at once when a catalog is read.
const ADOPT_BATCH: usize = 16_384;

/// Writes every now and then until `stop` turns true.
pub(crate) async fn run(
    shelves: Vec<Arc<Shelf>>,
    catalog: Arc<dyn Catalog>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(INTERVAL) => write(&shelves, catalog.as_ref()).await,
        }
    }
}

/// Writes what changed since the last call.
pub(crate) async fn write(shelves: &[Arc<Shelf>], catalog: &dyn Catalog) {
    let changes: Vec<_> = shelves.iter().flat_map(|shelf| changes(shelf)).collect();
    if changes.is_empty() {
        return;
    }
    let again: Vec<_> = changes
        .iter()
        .map(|change| match change {
            CatalogChange::Put(record) => (&record.dataset, &record.name),
            CatalogChange::Remove(dataset, name) => (dataset, name),
        })
        .map(|(dataset, name)| (dataset.clone(), name.clone()))
        .collect();
    if let Err(error) = catalog.apply(changes).await {
        tracing::error!(%error, "the catalog cannot be written; what it misses is cold after a restart");
        for (dataset, name) in again {
            let shelf = shelves.iter().find(|shelf| shelf.dataset.name == dataset);
            if let Some(shelf) = shelf {
                shelf.ledger().mark_again(name);
            }
        }
    }
}

fn changes(shelf: &Shelf) -> Vec<CatalogChange> {
    let (changed, gone) = shelf.ledger().take_changes();
    let persistent = shelf.store.persistent(&shelf.pool_name);
    let dataset = &shelf.dataset.name;
    // A name that was forgotten and has come back is in both lists: the removal goes first.
    let removals = gone.into_iter().map(|name| CatalogChange::Remove(dataset.clone(), name));
    let puts = changed.into_iter().map(|object| {
        CatalogChange::Put(ObjectRecord {
            dataset: dataset.clone(),
            name: object.pinned.name.clone(),
            meta: object.pinned.meta.clone(),
            block_bytes: object.pinned.block_bytes,
            asked_at: object.asked_at,
            used_at: object.used_at,
            resident: if persistent { object.resident } else { Vec::new() },
        })
    });
    removals.chain(puts).collect()
}

/// Fills the object tables from the catalog, with the blocks that the store still has. Blocks that
/// it has not are counted as lost; records of no dataset are dropped.
pub(crate) async fn restore(shelves: &mut [(Arc<Shelf>, Box<dyn Policy>)], catalog: &dyn Catalog) {
    let mut records = match catalog.load().await {
        Ok(records) => records,
        Err(error) => {
            tracing::error!(%error, "the catalog cannot be read; this start is cold");
            return;
        }
    };
    // The policies are told of residents in the order in which they were read.
    records.sort_by_key(|record| record.used_at);
    let mut foreign = Vec::new();
    for (shelf, policy) in shelves {
        let own: Vec<_> = records
            .extract_if(.., |record| record.dataset == shelf.dataset.name)
            .filter_map(|record| match pin(shelf, &record) {
                Some(pinned) => Some((record, pinned)),
                None => {
                    foreign.push(CatalogChange::Remove(record.dataset, record.name));
                    None
                }
            })
            .collect();
        adopt(shelf, policy.as_mut(), own).await;
    }
    foreign.extend(records.into_iter().map(|r| CatalogChange::Remove(r.dataset, r.name)));
    if !foreign.is_empty()
        && let Err(error) = catalog.apply(foreign).await
    {
        tracing::warn!(%error, "records that belong to no dataset stay in the catalog");
    }
}

/// The pinned object of a record that still fits the configuration.
fn pin(shelf: &Shelf, record: &ObjectRecord) -> Option<Arc<Pinned>> {
    let fits = record.block_bytes == shelf.dataset.block_bytes
        && record.name.origin == shelf.dataset.origin
        && record.name.key.as_str().starts_with(&shelf.dataset.prefix)
        && match &shelf.dataset.bucket {
            BucketRule::One(bucket) => record.name.bucket == *bucket,
            BucketRule::Every => true,
        };
    let name = record.name.clone();
    let pinned = Pinned::new(&shelf.dataset.name, name, record.meta.clone(), record.block_bytes)?;
    fits.then(|| Arc::new(pinned))
}

async fn adopt(shelf: &Arc<Shelf>, policy: &mut dyn Policy, own: Vec<(ObjectRecord, Arc<Pinned>)>) {
    let mut lost = 0_u64;
    let mut batch = Vec::new();
    let mut keys = Vec::new();
    let count = own.len();
    for (at, (record, pinned)) in own.into_iter().enumerate() {
        let indexes: Vec<_> = marked(&record.resident, pinned.layout()).collect();
        keys.extend(indexes.iter().map(|index| pinned.digest.block(*index)));
        batch.push((record, pinned, indexes));
        if keys.len() < ADOPT_BATCH && at + 1 < count {
            continue;
        }
        let present = shelf.store.adopt(&shelf.pool_name, std::mem::take(&mut keys)).await;
        lost += take_in(shelf, std::mem::take(&mut batch), present);
        // The policy hears of them batch by batch, so that the journal stays short.
        steward::round(shelf, policy).await;
    }
    if lost > 0 {
        tracing::warn!(dataset = %shelf.dataset.name, blocks = lost, "blocks of the catalog are not in the store any more");
    }
    shelf.meters.lost_at_start.inc_by(lost);
    shelf.stir.notify_one();
}

/// A record, its object, and the blocks that it says are resident.
type Adopted = (ObjectRecord, Arc<Pinned>, Vec<u64>);

/// Puts a batch of records into the table, with the blocks that are present. Tells how many are not.
fn take_in(shelf: &Shelf, batch: Vec<Adopted>, present: Vec<bool>) -> u64 {
    let mut lost = 0;
    let mut present = present.into_iter();
    let mut ledger = shelf.ledger();
    for (record, pinned, indexes) in batch {
        let all = indexes.len();
        let kept: Vec<_> = indexes
            .into_iter()
            .zip(present.by_ref())
            .filter(|(_, present)| *present)
            .map(|(index, _)| (index, shelf.stored_bytes(&pinned, index)))
            .collect();
        let missing = (all - kept.len()) as u64;
        lost += missing;
        let name = pinned.name.clone();
        ledger.restore(&record, pinned, &kept);
        if missing > 0 {
            ledger.mark_again(name);
        }
    }
    lost
}
