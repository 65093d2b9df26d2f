//! The catalog of objects in one redb file.
//!
//! Invariant: what was acknowledged survives a kill; what cannot be read is skipped or put aside,
//! never trusted. The cache works on without it.

mod record;

use async_trait::async_trait;
use larder_model::{Catalog, CatalogChange, CatalogError, ObjectRecord};
use prometheus::{IntCounter, Registry};
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Bytes = &'static [u8];
const OBJECTS: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("objects");
const FORMAT: TableDefinition<'static, &'static str, u64> = TableDefinition::new("format");
/// The form of the keys. Records carry a version of their own.
const VERSION: u64 = 1;
/// redb's page cache; its default is 1 GiB.
const CACHE_BYTES: usize = 16 << 20;

/// Object records in `catalog.redb`. Cloning shares the file.
#[derive(Clone)]
pub struct RedbCatalog {
    file: Arc<File>,
    skipped: IntCounter,
}

struct File {
    path: PathBuf,
    database: Database,
}

/// Why a database file cannot be used.
enum Unusable {
    /// Damaged, or not of this format: put aside, start empty.
    Damaged(String),
    /// In use or not accessible: the operator's matter.
    Denied(String),
}

impl RedbCatalog {
    /// Opens `catalog.redb` in `directory`, or creates both. A damaged file, or one of another
    /// format, is renamed to `catalog.redb.damaged`, with a warning: the cache starts cold.
    ///
    /// # Errors
    ///
    /// When the file is in use by another process or cannot be created or renamed.
    pub async fn open(directory: &Path, registry: &Registry) -> Result<Self, CatalogError> {
        let skipped = IntCounter::new(
            "larder_catalog_skipped_total",
            "Records of the catalog that could not be decoded and were skipped",
        );
        let path = directory.join("catalog.redb");
        let registered = skipped.and_then(|skipped| {
            registry.register(Box::new(skipped.clone()))?;
            Ok(skipped)
        });
        let skipped = registered.map_err(failed(&path, "cannot register its metrics"))?;
        let directory = directory.to_owned();
        let (at, opening) = (path.clone(), path.clone());
        let opened = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(directory).map_err(|e| Unusable::Denied(e.to_string()))?;
            open(&opening)
        })
        .await;
        // A panic inside redb means a file that it did not expect.
        let opened = opened.unwrap_or_else(|panic| Err(Unusable::Damaged(panic.to_string())));
        let database = match opened {
            Ok(database) => database,
            Err(Unusable::Denied(reason)) => return Err(failed(&at, "cannot open it")(reason)),
            Err(Unusable::Damaged(reason)) => {
                let aside = path.with_extension("redb.damaged");
                tracing::warn!(
                    path = %path.display(), aside = %aside.display(), reason,
                    "the catalog is damaged or of another format: it is put aside, the cache starts cold"
                );
                let reopened = tokio::task::spawn_blocking(move || {
                    std::fs::rename(&at, aside).map_err(|e| Unusable::Denied(e.to_string()))?;
                    open(&at)
                })
                .await;
                match reopened {
                    Ok(Ok(database)) => database,
                    Ok(Err(Unusable::Denied(reason) | Unusable::Damaged(reason))) => {
                        return Err(failed(&path, "cannot replace the damaged file")(reason));
                    }
                    Err(panic) => return Err(failed(&path, "cannot create it")(panic)),
                }
            }
        };
        Ok(Self { file: Arc::new(File { path, database }), skipped })
    }

    async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let file = self.file.clone();
        let done = tokio::task::spawn_blocking(move || work(&file.database)).await;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(failed(&self.file.path, what)(error)),
            Err(panic) => Err(failed(&self.file.path, what)(panic)),
        }
    }
}

#[async_trait]
impl Catalog for RedbCatalog {
    async fn load(&self) -> Result<Vec<ObjectRecord>, CatalogError> {
        let skipped = self.skipped.clone();
        self.run("cannot read the records", move |database| {
            let table = database.begin_read()?.open_table(OBJECTS)?;
            let mut records = Vec::new();
            for entry in table.range::<&[u8]>(..)? {
                let (key, value) = entry?;
                match record::decode(key.value(), value.value()) {
                    Some(record) => records.push(record),
                    None => skipped.inc(),
                }
            }
            Ok(records)
        })
        .await
    }

    async fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), CatalogError> {
        self.run("cannot write the changes", move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut table = transaction.open_table(OBJECTS)?;
                for change in &changes {
                    match change {
                        CatalogChange::Put(object) => {
                            let key = record::key(&object.dataset, &object.name);
                            table.insert(&*key, &*record::encode(object))?;
                        }
                        CatalogChange::Remove(dataset, name) => {
                            table.remove(&*record::key(dataset, name))?;
                        }
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        })
        .await
    }
}

/// Opens the file and reads through it once, so that damage shows now and not in mid-operation.
fn open(path: &Path) -> Result<Database, Unusable> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(path);
    let mut database = database.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => {
            Unusable::Denied("another process is using it: stop that one first".to_owned())
        }
        DatabaseError::Storage(StorageError::Io(error))
            if !matches!(
                error.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            Unusable::Denied(error.to_string())
        }
        other => Unusable::Damaged(other.to_string()),
    })?;
    // Checksums of every page, then every record: redb panics on what it did not write.
    let sound = database.check_integrity().map_err(|error| Unusable::Damaged(error.to_string()))?;
    if !sound {
        tracing::info!(path = %path.display(), "the catalog was repaired after an unclean end");
    }
    match version(&database) {
        Ok(VERSION) => Ok(database),
        Ok(other) => Err(Unusable::Damaged(format!("format {other}, not {VERSION}"))),
        Err(error) => Err(Unusable::Damaged(error.to_string())),
    }
}

/// The format of the file, after every table has been read through; a new file gets ours.
fn version(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let version = {
        let mut format = transaction.open_table(FORMAT)?;
        let version = format.get("version")?.map(|version| version.value());
        if version.is_none() {
            format.insert("version", VERSION)?;
        }
        let objects = transaction.open_table(OBJECTS)?;
        for entry in objects.iter()? {
            let (key, value) = entry?;
            let _ = record::decode(key.value(), value.value());
        }
        version.unwrap_or(VERSION)
    };
    transaction.commit()?;
    Ok(version)
}

fn failed<E: Display>(path: &Path, what: &'static str) -> impl FnOnce(E) -> CatalogError {
    let path = path.display().to_string();
    move |reason| CatalogError { path, what, reason: reason.to_string() }
}
