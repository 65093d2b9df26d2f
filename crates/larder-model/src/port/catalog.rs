//! The catalog: what is known of objects, kept across restarts.

use crate::{DatasetName, ObjectMeta, ObjectName, Timestamp};
use std::sync::Arc;

/// What is known of one object of one dataset.
#[derive(Clone, Debug)]
pub struct ObjectRecord {
    /// The dataset that it is cached for.
    pub dataset: DatasetName,
    /// The object.
    pub name: ObjectName,
    /// Its last known state.
    pub meta: Arc<ObjectMeta>,
    /// The block length in force when its blocks were stored.
    pub block_bytes: u32,
    /// When the origin was last asked about it.
    pub asked_at: Timestamp,
    /// When a client last read it.
    pub used_at: Timestamp,
    /// The blocks that are in the store: bit i of word i / 64 stands for block i.
    pub resident: Vec<u64>,
}

/// One change to the catalog.
#[derive(Clone, Debug)]
pub enum CatalogChange {
    /// Insert or replace the record of (dataset, name).
    Put(ObjectRecord),
    /// Forget it.
    Remove(DatasetName, ObjectName),
}

/// The catalog could not be read or written. The cache works on without it; a restart is then cold.
#[derive(Debug, thiserror::Error)]
#[error("catalog {path}: {what}: {reason}")]
pub struct CatalogError {
    /// The database file.
    pub path: String,
    /// What was being done.
    pub what: &'static str,
    /// What went wrong.
    pub reason: String,
}

/// Where object records outlive the process.
#[async_trait::async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Every record, in no particular order.
    async fn load(&self) -> Result<Vec<ObjectRecord>, CatalogError>;

    /// Applies the changes in order, all or none. Returns once they would survive a kill of the
    /// process.
    async fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), CatalogError>;
}
