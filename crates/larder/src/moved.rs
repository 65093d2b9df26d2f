//! Origins that point elsewhere than when the cache was filled.
//!
//! The catalog knows origins by their names in the configuration. A name whose endpoint or folder
//! has changed is another store, and what is cached of the old one must not be served as the new
//! one's: its records are removed before anything is served.

use crate::config::{OriginKind, OriginRule};
use anyhow::Context as _;
use larder_model::{Catalog, CatalogChange};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// In the cache directory: a line `NAME PLACE` for each origin.
const FILE: &str = "origins";

/// Removes the records of origins that have moved since this cache directory was used last, and
/// notes where the origins are now.
///
/// # Errors
///
/// When the note or the catalog cannot be read or written: then the cache cannot be trusted.
pub(crate) async fn forget(
    directory: &Path,
    origins: &[OriginRule],
    catalog: &dyn Catalog,
) -> anyhow::Result<()> {
    let file = directory.join(FILE);
    let told = match fs::read_to_string(&file) {
        Ok(told) => told,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let before: BTreeMap<&str, &str> =
        told.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut now: BTreeMap<&str, String> =
        origins.iter().map(|origin| (origin.name.as_str(), place(&origin.kind))).collect();
    // What has no note was filled by nobody knows whom.
    let moved = |name: &str| match now.get(name) {
        Some(place) => before.get(name) != Some(&place.as_str()),
        None => !before.contains_key(name),
    };
    let mut foreign = Vec::new();
    if now.keys().any(|name| moved(name)) {
        let records = catalog.load().await.context("reading the catalog")?;
        let old = records.into_iter().filter(|record| moved(record.name.origin.as_str()));
        foreign.extend(old.map(|record| CatalogChange::Remove(record.dataset, record.name)));
    }
    if !foreign.is_empty() {
        tracing::warn!(
            objects = foreign.len(),
            "an origin's endpoint or path is another than when the cache was filled: what was \
             cached of the old one is let go"
        );
        catalog
            .apply(foreign)
            .await
            .context("removing an old origin's objects from the catalog")?;
    }
    // An origin that is not configured at the moment may come back as it was.
    for (name, place) in before {
        now.entry(name).or_insert_with(|| place.to_owned());
    }
    let text: String = now.iter().map(|(name, place)| format!("{name} {place}\n")).collect();
    if text != told {
        let new = directory.join("origins.new");
        fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &file).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Where an origin is, in one line.
fn place(kind: &OriginKind) -> String {
    let place = match kind {
        OriginKind::S3(rule) => rule.endpoint.trim_end_matches('/').to_owned(),
        OriginKind::Directory(path) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            format!("directory {}", path.display())
        }
    };
    place.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::forget;
    use crate::config::{OriginKind, OriginRule};
    use larder_model::{
        BucketName, Catalog, CatalogChange, CatalogError, DatasetName, ObjectKey, ObjectMeta,
        ObjectName, ObjectRecord, OriginName, Timestamp,
    };
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Memory(Mutex<Vec<ObjectRecord>>);

    #[async_trait::async_trait]
    impl Catalog for Memory {
        async fn load(&self) -> Result<Vec<ObjectRecord>, CatalogError> {
            Ok(self.0.lock().unwrap().clone())
        }

        async fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), CatalogError> {
            for change in changes {
                let CatalogChange::Remove(_, name) = change else { panic!("only removals") };
                self.0.lock().unwrap().retain(|record| record.name != name);
            }
            Ok(())
        }
    }

    fn record(origin: &str) -> ObjectRecord {
        ObjectRecord {
            dataset: DatasetName::new("d").unwrap(),
            name: ObjectName {
                origin: OriginName::new(origin).unwrap(),
                bucket: BucketName::new("data").unwrap(),
                key: ObjectKey::new("k").unwrap(),
                version_id: None,
            },
            meta: Arc::new(ObjectMeta {
                size: 1,
                etag: None,
                version_id: None,
                headers: http::HeaderMap::new(),
            }),
            block_bytes: 1 << 20,
            asked_at: Timestamp(0),
            used_at: Timestamp(0),
            resident: Vec::new(),
        }
    }

    fn rule(name: &str, path: &Path) -> OriginRule {
        let kind = OriginKind::Directory(path.to_owned());
        OriginRule { name: OriginName::new(name).unwrap(), kind }
    }

    #[tokio::test]
    async fn an_origin_that_points_elsewhere_is_forgotten_and_others_are_not() {
        let cache = tempfile::tempdir().unwrap();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let catalog = Memory::default();
        let fill = |names: &[&str]| {
            *catalog.0.lock().unwrap() = names.iter().map(|name| record(name)).collect();
        };
        let origins = || -> Vec<String> {
            let records = catalog.0.lock().unwrap();
            records.iter().map(|record| record.name.origin.to_string()).collect()
        };
        // The first start: whatever is there was filled by nobody knows whom.
        fill(&["a"]);
        let rules = [rule("a", one.path()), rule("b", two.path())];
        forget(cache.path(), &rules, &catalog).await.unwrap();
        assert!(origins().is_empty());
        fill(&["a", "b"]);
        forget(cache.path(), &rules, &catalog).await.unwrap();
        assert_eq!(origins(), ["a", "b"], "nothing moved");
        // One is not configured for a while, and then as before.
        forget(cache.path(), &rules[..1], &catalog).await.unwrap();
        forget(cache.path(), &rules, &catalog).await.unwrap();
        assert_eq!(origins(), ["a", "b"]);
        let moved = [rule("a", two.path()), rule("b", two.path())];
        forget(cache.path(), &moved, &catalog).await.unwrap();
        assert_eq!(origins(), ["b"]);
    }
}
