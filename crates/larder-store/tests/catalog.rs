//! The catalog through its port: what is put in comes out, across restarts and damage.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use http::{HeaderMap, HeaderName, HeaderValue};
use larder_model::{
    BucketName, Catalog, CatalogChange, DatasetName, ETag, ObjectKey, ObjectMeta, ObjectName,
    ObjectRecord, OriginName, Timestamp, VersionId,
};
use larder_store::RedbCatalog;
use prometheus::Registry;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

async fn open(path: &Path) -> RedbCatalog {
    RedbCatalog::open(path, &Registry::new()).await.unwrap()
}

fn record(key: &str, size: u64) -> ObjectRecord {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/octet-stream"));
    headers.insert("last-modified", HeaderValue::from_static("Wed, 21 Oct 2015 07:28:00 GMT"));
    let etag = ETag::new("\"d41d8cd98f00b204e9800998ecf8427e\"");
    ObjectRecord {
        dataset: DatasetName::new("imagenet").unwrap(),
        name: ObjectName {
            origin: OriginName::new("hangzhou").unwrap(),
            bucket: BucketName::new("train-data").unwrap(),
            key: ObjectKey::new(key).unwrap(),
            version_id: None,
        },
        meta: Arc::new(ObjectMeta { size, etag, version_id: None, headers }),
        block_bytes: 1 << 20,
        asked_at: Timestamp(1_700_000_000_000),
        used_at: Timestamp(1_700_000_000_001),
        resident: vec![1],
    }
}

type Shown = (DatasetName, ObjectName, ObjectMeta, u32, Timestamp, Timestamp, Vec<u64>);

fn shown(record: &ObjectRecord) -> Shown {
    let ObjectRecord { dataset, name, meta, block_bytes, asked_at, used_at, resident } =
        record.clone();
    (dataset, name, (*meta).clone(), block_bytes, asked_at, used_at, resident)
}

fn hostile_key() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{1,200}",
        Just("\u{0}".to_owned()),
        Just("../../etc/passwd".to_owned()),
        Just("x".repeat(1024)),
        Just("a//b/./c".to_owned()),
        Just("\u{10FFFF}\n\r\t".to_owned()),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let value = vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..=0xff], 0..60);
    vec(("[a-z][a-z0-9-]{0,20}", value), 0..8).prop_map(|pairs| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        headers
    })
}

fn any_record() -> impl Strategy<Value = ObjectRecord> {
    let version = || proptest::option::of("\\PC{1,40}");
    let etag = proptest::option::of("[ -~]{1,60}");
    let names = ("[a-z]{1,3}", "[a-z]{1,3}", "[a-z]{3,5}", hostile_key(), version());
    let meta = (any::<u64>(), etag, version(), headers());
    let rest = (any::<u32>(), any::<u64>(), any::<u64>(), vec(any::<u64>(), 0..20));
    (names, meta, rest).prop_map(|(names, meta, rest)| ObjectRecord {
        dataset: DatasetName::new(names.0).unwrap(),
        name: ObjectName {
            origin: OriginName::new(names.1).unwrap(),
            bucket: BucketName::new(names.2).unwrap(),
            key: ObjectKey::new(names.3).unwrap(),
            version_id: names.4.map(|id| VersionId::new(id).unwrap()),
        },
        meta: Arc::new(ObjectMeta {
            size: meta.0,
            etag: meta.1.and_then(|tag| ETag::new(&tag)),
            version_id: meta.2.map(|id| VersionId::new(id).unwrap()),
            headers: meta.3,
        }),
        block_bytes: rest.0,
        asked_at: Timestamp(rest.1),
        used_at: Timestamp(rest.2),
        resident: rest.3,
    })
}

proptest! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]
    #[test]
    fn what_was_applied_is_loaded_after_a_restart(
        records in vec(any_record(), 1..12),
        removed in vec(any::<proptest::sample::Index>(), 0..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = HashMap::new();
        for record in &records {
            model.insert((record.dataset.clone(), record.name.clone()), shown(record));
        }
        let mut changes: Vec<_> = records.iter().cloned().map(CatalogChange::Put).collect();
        for index in removed {
            let record = &records[index.index(records.len())];
            let name = (record.dataset.clone(), record.name.clone());
            model.remove(&name);
            changes.push(CatalogChange::Remove(name.0, name.1));
        }
        let loaded = run(async {
            let catalog = open(dir.path()).await;
            catalog.apply(changes).await.unwrap();
            drop(catalog);
            open(dir.path()).await.load().await.unwrap()
        });
        let found: HashMap<_, _> = loaded
            .iter()
            .map(|record| ((record.dataset.clone(), record.name.clone()), shown(record)))
            .collect();
        prop_assert_eq!(loaded.len(), found.len());
        prop_assert_eq!(found, model);
    }
}

#[test]
fn a_file_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let _first = open(dir.path()).await;
        let error = RedbCatalog::open(dir.path(), &Registry::new()).await.err().unwrap();
        assert!(error.to_string().contains("another process"), "{error}");
    });
}

/// Damages the file of a catalog with records; tells how many are found afterwards.
fn found_after(damage: impl FnOnce(&Path)) -> (usize, bool) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("catalog.redb");
    run(async {
        let catalog = open(dir.path()).await;
        let put = |i| CatalogChange::Put(record(&format!("object {i}"), i));
        catalog.apply((0..500).map(put).collect()).await.unwrap();
        drop(catalog);
        damage(&file);
        let catalog = open(dir.path()).await;
        let found = catalog.load().await.unwrap();
        found.iter().for_each(|found| {
            assert_eq!(found.name.key.as_str(), format!("object {}", found.meta.size));
        });
        catalog.apply(vec![CatalogChange::Put(record("new", 1))]).await.unwrap();
        (found.len(), dir.path().join("catalog.redb.damaged").exists())
    })
}

#[test]
fn a_damaged_file_is_put_aside_and_the_catalog_starts_empty() {
    let garbage = found_after(|file| std::fs::write(file, vec![7; 100_000]).unwrap());
    assert_eq!(garbage, (0, true));
    let zeroed = found_after(|file| {
        let len = std::fs::metadata(file).unwrap().len();
        std::fs::write(file, vec![0; len as usize]).unwrap();
    });
    assert_eq!(zeroed, (0, true));
    let text = found_after(|file| std::fs::write(file, "not a database").unwrap());
    assert_eq!(text, (0, true));
}

#[test]
fn a_file_of_another_format_is_put_aside() {
    let other = found_after(|file| {
        let database = redb::Database::create(file).unwrap();
        let transaction = database.begin_write().unwrap();
        let format = redb::TableDefinition::<&str, u64>::new("format");
        transaction.open_table(format).unwrap().insert("version", 999).unwrap();
        transaction.commit().unwrap();
    });
    assert_eq!(other, (0, true));
}

#[test]
fn flipped_bits_are_never_believed() {
    for seed in 0..20_usize {
        let (found, _) = found_after(|file| {
            let mut bytes = std::fs::read(file).unwrap();
            let step = bytes.len() / 40;
            for at in (seed * 97..bytes.len()).step_by(step) {
                bytes[at] ^= 1 << (seed % 8);
            }
            std::fs::write(file, bytes).unwrap();
        });
        assert!(found <= 500);
    }
}

#[test]
fn an_undecodable_record_is_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let catalog = open(dir.path()).await;
        catalog.apply(vec![CatalogChange::Put(record("good", 1))]).await.unwrap();
        drop(catalog);
        let database = redb::Database::create(dir.path().join("catalog.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let objects = redb::TableDefinition::<&[u8], &[u8]>::new("objects");
        transaction.open_table(objects).unwrap().insert(&b"bad"[..], &b"bad"[..]).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let registry = Registry::new();
        let catalog = RedbCatalog::open(dir.path(), &registry).await.unwrap();
        assert_eq!(catalog.load().await.unwrap().len(), 1);
        let skipped = registry.gather();
        assert_eq!(skipped[0].name(), "larder_catalog_skipped_total");
        assert_eq!(skipped[0].get_metric()[0].get_counter().get_value(), 1.0);
    });
}

#[test]
fn a_hundred_thousand_records_are_applied_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let catalog = open(dir.path()).await;
        let started = Instant::now();
        for batch in 0..20 {
            let put = |i| CatalogChange::Put(record(&format!("n{i:07}/images_{i}.JPEG"), i));
            let changes = (batch * 5000..(batch + 1) * 5000).map(put).collect();
            catalog.apply(changes).await.unwrap();
        }
        let applied = started.elapsed();
        drop(catalog);
        let started = Instant::now();
        let catalog = open(dir.path()).await;
        let opened = started.elapsed();
        let started = Instant::now();
        assert_eq!(catalog.load().await.unwrap().len(), 100_000);
        let bytes = std::fs::metadata(dir.path().join("catalog.redb")).unwrap().len();
        println!(
            "100,000 records: applied {applied:?}, opened {opened:?}, loaded {:?}, {bytes} bytes",
            started.elapsed()
        );
    });
}
