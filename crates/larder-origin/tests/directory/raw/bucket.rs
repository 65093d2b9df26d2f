//! Buckets: made, removed, and asked for their settings.

use super::{ask, ask_bucket, get, put};
use crate::fixture::fixture;
use http::Method;
use std::fs;

#[tokio::test]
async fn a_bucket_is_made_once_under_a_good_name() {
    let fixture = fixture();
    let create = |name: &str| ask_bucket(Method::PUT).of(name);
    let told = fixture.ask(create("new.bucket-1")).await;
    assert_eq!((told.outcome().as_str(), told.header("location")), ("200", Some("/new.bucket-1")));
    assert_eq!(fixture.outcome(put("key", b"x").of("new.bucket-1")).await, "200");
    assert!(fixture.root.path().join("new.bucket-1/key").is_file());
    assert_eq!(fixture.outcome(create("bucket")).await, "409 BucketAlreadyOwnedByYou");
    fs::write(fixture.root.path().join("a-file"), "x").unwrap();
    assert_eq!(fixture.outcome(create("a-file")).await, "409 BucketAlreadyExists");
    for odd in ["Upper", "under_score", "127.0.0.1", "end-"] {
        assert_eq!(fixture.outcome(create(odd)).await, "400 InvalidBucketName", "{odd}");
    }
    let xmlns = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    let configured = |inside: &str| {
        let root = "CreateBucketConfiguration";
        let document = format!("<{root} {xmlns}>{inside}</{root}>");
        create("elsewhere").whole(document.as_bytes())
    };
    assert_eq!(fixture.outcome(configured("<Strange/>")).await, "400 MalformedXML");
    assert_eq!(fixture.outcome(configured("<Bucket/>")).await, "501 NotImplemented");
    assert!(!fixture.root.path().join("elsewhere").exists());
    let region = "<LocationConstraint>eu-west-1</LocationConstraint>";
    assert_eq!(fixture.outcome(configured(region)).await, "200");
    let locked = create("locked").header("x-amz-bucket-object-lock-enabled", "true");
    assert_eq!(fixture.outcome(locked).await, "501 NotImplemented");
}

#[tokio::test]
async fn only_an_empty_bucket_is_removed() {
    let fixture = fixture();
    let delete = || ask_bucket(Method::DELETE);
    fixture.write("a/b/c", "x");
    assert_eq!(fixture.outcome(delete()).await, "409 BucketNotEmpty");
    assert_eq!(fixture.outcome(ask(Method::DELETE, "a/b/c")).await, "204");
    // No object, but somebody's.
    std::os::unix::fs::symlink("nowhere", fixture.bucket().join("link")).unwrap();
    assert_eq!(fixture.outcome(delete()).await, "409 BucketNotEmpty");
    fs::remove_file(fixture.bucket().join("link")).unwrap();
    fs::create_dir_all(fixture.bucket().join("d/e")).unwrap();
    std::os::unix::fs::symlink("nowhere", fixture.bucket().join("d/link")).unwrap();
    assert_eq!(fixture.outcome(delete()).await, "409 BucketNotEmpty");
    assert!(fixture.bucket().join("d/link").is_symlink());
    fs::remove_file(fixture.bucket().join("d/link")).unwrap();
    // An upload does not keep it, as at S3.
    let create = ask(Method::POST, "key").query("uploads", "");
    assert_eq!(fixture.outcome(create).await, "200");
    assert_eq!(fixture.outcome(delete()).await, "204");
    assert!(!fixture.bucket().exists());
    assert_eq!(fixture.outcome(delete()).await, "404 NoSuchBucket");
    assert_eq!(fixture.outcome(put("key", b"x")).await, "404 NoSuchBucket");
    assert_eq!(
        fixture.outcome(ask(Method::POST, "k").query("uploads", "")).await,
        "404 NoSuchBucket"
    );
    assert!(!fixture.bucket().exists());
}

#[tokio::test]
async fn clients_that_ask_for_settings_are_told_that_there_are_none() {
    let fixture = fixture();
    let asked = |name: &str| ask_bucket(Method::GET).query(name, "");
    for (name, root) in [
        ("versioning", "VersioningConfiguration"),
        ("notification", "NotificationConfiguration"),
        ("logging", "BucketLoggingStatus"),
        ("location", "LocationConstraint"),
    ] {
        let told = fixture.ask(asked(name)).await;
        assert_eq!(told.status, 200, "{name}");
        let empty = format!("<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"></{root}>");
        assert!(told.text().ends_with(&empty), "{}", told.text());
    }
    assert_eq!(fixture.ask(asked("requestPayment")).await.first("Payer"), "BucketOwner");
    for (name, expected) in [
        ("policy", "404 NoSuchBucketPolicy"),
        ("cors", "404 NoSuchCORSConfiguration"),
        ("lifecycle", "404 NoSuchLifecycleConfiguration"),
        ("tagging", "404 NoSuchTagSet"),
        ("website", "404 NoSuchWebsiteConfiguration"),
        ("replication", "404 ReplicationConfigurationNotFoundError"),
        ("encryption", "404 ServerSideEncryptionConfigurationNotFoundError"),
        ("object-lock", "404 ObjectLockConfigurationNotFoundError"),
        ("publicAccessBlock", "404 NoSuchPublicAccessBlockConfiguration"),
        ("ownershipControls", "404 OwnershipControlsNotFoundError"),
    ] {
        assert_eq!(fixture.outcome(asked(name)).await, expected);
        assert_eq!(fixture.outcome(asked(name).of("nowhere")).await, "404 NoSuchBucket");
    }
    assert_eq!(fixture.outcome(asked("versioning").of("nowhere")).await, "404 NoSuchBucket");
    assert_eq!(fixture.outcome(ask_bucket(Method::HEAD)).await, "200");
    assert_eq!(fixture.outcome(ask_bucket(Method::HEAD).of("nowhere")).await, "404");
}

#[tokio::test]
async fn everything_is_its_owners() {
    let fixture = fixture();
    fixture.write("key", "x");
    for request in [ask_bucket(Method::GET), get("key")] {
        let told = fixture.ask(request.query("acl", "")).await;
        assert_eq!((told.status, told.first("Permission").as_str()), (200, "FULL_CONTROL"));
        assert!(told.text().contains("xsi:type=\"CanonicalUser\""));
    }
    assert_eq!(fixture.outcome(get("none").query("acl", "")).await, "404 NoSuchKey");
    let bucket = ask_bucket(Method::GET).of("nowhere").query("acl", "");
    assert_eq!(fixture.outcome(bucket).await, "404 NoSuchBucket");
}
