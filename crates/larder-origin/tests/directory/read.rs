//! What is served, as what, and what is not there.

use crate::fixture::{MIB, bucket, code, drain, fixture, request};
use larder_model::{
    BucketName, ByteRange, ETag, FetchRequest, Origin as _, OriginError, VersionId,
};
use std::fs;
use std::os::unix::fs::symlink;

#[tokio::test]
async fn a_file_is_an_object() {
    let fixture = fixture();
    let content: Vec<u8> = (0..3 * MIB + 7).map(|i| (i / 7) as u8).collect();
    fixture.write("a/b.json", &content);
    assert_eq!(fixture.get("a/b.json").await.unwrap(), content);
    let meta = fixture.head("a/b.json").await.unwrap();
    assert_eq!(meta.size, content.len() as u64);
    assert_eq!(meta.headers["content-type"], "application/json");
    assert_eq!(meta.headers["etag"], meta.etag.as_ref().unwrap().as_str());
    assert!(meta.last_modified().is_some() && meta.version().is_some());
    let tag = meta.etag.unwrap();
    assert!(tag.as_str().ends_with("-d\"") && tag.as_str().len() == 36, "{tag}");
}

#[tokio::test]
async fn ranges_are_clipped_and_checked() {
    let fixture = fixture();
    fixture.write("key", "0123456789");
    for (range, expected) in [((0, 4), "0123"), ((4, 100), "456789"), ((9, 10), "9")] {
        let range = ByteRange::new(range.0, range.1);
        let fetched = fixture.origin.fetch(FetchRequest { range, ..request("key") }).await.unwrap();
        assert_eq!(fetched.range, range.unwrap().clip(10));
        assert_eq!(fetched.meta.size, 10);
        assert_eq!(drain(fetched).await.unwrap(), expected);
    }
    let behind = FetchRequest { range: ByteRange::new(10, 11), ..request("key") };
    let failed = fixture.origin.fetch(behind).await.err().unwrap();
    assert!(matches!(failed, OriginError::RangeNotSatisfiable { size: Some(10), .. }));
}

#[tokio::test]
async fn an_empty_file_is_an_empty_object() {
    let fixture = fixture();
    fixture.write("key", "");
    let fetched = fixture.origin.fetch(request("key")).await.unwrap();
    assert_eq!((fetched.range, fetched.meta.size), (None, 0));
    assert_eq!(drain(fetched).await.unwrap(), "");
    let ranged = FetchRequest { range: ByteRange::new(0, 1), ..request("key") };
    let failed = fixture.origin.fetch(ranged).await.err().unwrap();
    assert!(matches!(failed, OriginError::RangeNotSatisfiable { size: Some(0), .. }));
}

#[tokio::test]
async fn conditions_versions_and_parts_are_checked() {
    let fixture = fixture();
    fixture.write("key", "x");
    let tag = fixture.head("key").await.unwrap().etag;
    let with = |if_match| FetchRequest { if_match, ..request("key") };
    assert!(fixture.origin.fetch(with(tag)).await.is_ok());
    let other = fixture.origin.fetch(with(ETag::new("\"other\""))).await;
    assert!(matches!(other, Err(OriginError::VersionChanged)));

    let part = |part_number| FetchRequest { part_number, ..request("key") };
    assert!(fixture.origin.fetch(part(Some(1))).await.is_ok());
    assert_eq!(code(fixture.origin.fetch(part(Some(2))).await), "416 InvalidPartNumber");

    let mut versioned = request("key");
    versioned.name.version_id = VersionId::new("null").ok();
    assert!(fixture.origin.fetch(versioned.clone()).await.is_ok());
    versioned.name.version_id = VersionId::new("v1").ok();
    assert_eq!(code(fixture.origin.fetch(versioned).await), "404 NoSuchVersion");
}

#[tokio::test]
async fn what_is_missing_is_told() {
    let fixture = fixture();
    fixture.write("folder/key", "x");
    for missing in ["none", "folder", "folder/key/below", "folder/none"] {
        assert_eq!(code(fixture.get(missing).await), "404 NoSuchKey", "{missing}");
    }
    let mut elsewhere = request("key");
    elsewhere.name.bucket = BucketName::new("other").unwrap();
    assert_eq!(code(fixture.origin.fetch(elsewhere).await), "404 NoSuchBucket");
}

#[tokio::test]
async fn buckets_are_the_sub_folders() {
    let fixture = fixture();
    fs::create_dir(fixture.root.path().join("another")).unwrap();
    fs::create_dir(fixture.root.path().join("no bucket")).unwrap();
    fs::write(fixture.root.path().join("a-file"), "").unwrap();
    symlink(fixture.bucket(), fixture.root.path().join("linked")).unwrap();
    let buckets = fixture.origin.list_buckets().await.unwrap();
    let names: Vec<_> = buckets.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["another", "bucket"]);
    assert!(fixture.origin.head_bucket(&bucket()).await.is_ok());
    for missing in ["linked", "a-file", "none"] {
        let missing = BucketName::new(missing).unwrap();
        assert_eq!(code(fixture.origin.head_bucket(&missing).await), "404 NoSuchBucket");
    }
    assert_eq!(fixture.origin.bucket_location(&bucket()).await.unwrap(), "");
}
