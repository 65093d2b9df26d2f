//! CopyObject.

use super::{ask, get, put};
use crate::fixture::{MIB, fixture};
use http::Method;
use std::fs;

fn copy(from: &str, to: &str) -> super::Ask {
    ask(Method::PUT, to).header("x-amz-copy-source", from)
}

#[tokio::test]
async fn a_copy_has_the_sources_bytes_headers_tags_and_checksum() {
    let fixture = fixture();
    let source = put("a b/é", &vec![7; 3 * MIB])
        .header("content-type", "text/odd")
        .header("x-amz-meta-a", "1")
        .header("x-amz-tagging", "k=v");
    assert_eq!(fixture.outcome(source).await, "200");
    let told = fixture.ask(copy("/bucket/a%20b/%C3%A9", "deep/copy")).await;
    assert_eq!(told.outcome(), "200");
    assert!(told.first("LastModified").ends_with('Z'));
    let head = fixture.ask(ask(Method::HEAD, "deep/copy")).await;
    assert_eq!(told.first("ETag").replace("&quot;", "\""), head.tag());
    assert_eq!(head.header("content-type"), Some("text/odd"));
    assert_eq!(head.header("x-amz-meta-a"), Some("1"));
    assert_eq!(head.header("x-amz-tagging-count"), Some("1"));
    assert!(fixture.ask(get("deep/copy")).await.body == vec![7; 3 * MIB]);
    // The source is its own.
    fixture.ask(ask(Method::DELETE, "a b/é")).await;
    assert_eq!(fixture.keys().await, ["deep/copy"]);
    assert_eq!(fixture.outcome(get("deep/copy")).await, "200");
}

#[tokio::test]
async fn directives_replace_headers_and_tags() {
    let fixture = fixture();
    let source = put("key", b"x").header("x-amz-meta-a", "1").header("x-amz-tagging", "k=v");
    fixture.ask(source).await;
    let replace = copy("bucket/key", "headers")
        .header("x-amz-metadata-directive", "REPLACE")
        .header("x-amz-meta-b", "2");
    assert_eq!(fixture.outcome(replace).await, "200");
    let head = fixture.ask(ask(Method::HEAD, "headers")).await;
    assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-meta-b")), (None, Some("2")));
    assert_eq!(head.header("x-amz-tagging-count"), Some("1"));
    let replace = copy("bucket/key", "tags")
        .header("x-amz-tagging-directive", "REPLACE")
        .header("x-amz-tagging", "l=w&m=x")
        .header("x-amz-meta-b", "ignored");
    assert_eq!(fixture.outcome(replace).await, "200");
    let head = fixture.ask(ask(Method::HEAD, "tags")).await;
    assert_eq!((head.header("x-amz-meta-a"), head.header("x-amz-meta-b")), (Some("1"), None));
    assert_eq!(head.header("x-amz-tagging-count"), Some("2"));
    let odd = copy("bucket/key", "x").header("x-amz-metadata-directive", "MERGE");
    assert_eq!(fixture.outcome(odd).await, "400 InvalidArgument");
}

#[tokio::test]
async fn a_copy_onto_itself_must_change_something() {
    let fixture = fixture();
    fixture.ask(put("key", b"x").header("x-amz-meta-a", "1")).await;
    assert_eq!(fixture.outcome(copy("bucket/key", "key")).await, "400 InvalidRequest");
    let replace = copy("bucket/key", "key")
        .header("x-amz-metadata-directive", "REPLACE")
        .header("content-type", "text/new");
    assert_eq!(fixture.outcome(replace).await, "200");
    let told = fixture.ask(get("key")).await;
    assert_eq!((told.text(), told.header("content-type")), ("x", Some("text/new")));
    assert_eq!(told.header("x-amz-meta-a"), None);
    assert_eq!(fixture.private("meta").len(), 1);
}

#[tokio::test]
async fn conditions_on_source_and_target_hold_or_refuse() {
    let fixture = fixture();
    let tag = fixture.ask(put("key", b"x")).await.tag();
    let check = async |name: &str, value: &str, expected: &str| {
        let told = fixture.outcome(copy("bucket/key", "to").header(name, value)).await;
        assert_eq!(told, expected, "{name}: {value}");
    };
    check("x-amz-copy-source-if-match", &tag, "200").await;
    check("x-amz-copy-source-if-match", "\"other\"", "412 PreconditionFailed").await;
    check("x-amz-copy-source-if-none-match", &tag, "412 PreconditionFailed").await;
    check("x-amz-copy-source-if-none-match", "\"other\"", "200").await;
    let (past, future) = ("Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 01 Jan 2399 00:00:00 GMT");
    check("x-amz-copy-source-if-modified-since", past, "200").await;
    check("x-amz-copy-source-if-modified-since", future, "412 PreconditionFailed").await;
    check("x-amz-copy-source-if-unmodified-since", past, "412 PreconditionFailed").await;
    check("x-amz-copy-source-if-unmodified-since", future, "200").await;
    check("if-none-match", "*", "412 PreconditionFailed").await;
    check("if-match", "\"other\"", "412 PreconditionFailed").await;
}

#[tokio::test]
async fn a_source_that_is_none_is_refused() {
    let fixture = fixture();
    fs::create_dir(fixture.root.path().join("other")).unwrap();
    fixture.write("key", "x");
    for (source, expected) in [
        ("bucket/none", "404 NoSuchKey"),
        ("other/key", "404 NoSuchKey"),
        ("nowhere/key", "404 NoSuchBucket"),
        ("..%2F/key", "404 NoSuchBucket"),
        ("bucket/..%2Fbucket%2Fkey", "404 NoSuchKey"),
        ("bucket/.larder/meta", "404 NoSuchKey"),
        ("bucket/key?versionId=v1", "404 NoSuchVersion"),
        ("bucket/", "400 InvalidArgument"),
        ("bucket", "400 InvalidArgument"),
        ("", "400 InvalidArgument"),
        ("bucket/%ff", "400 InvalidArgument"),
    ] {
        assert_eq!(fixture.outcome(copy(source, "to")).await, expected, "{source}");
    }
    assert_eq!(fixture.outcome(copy("bucket/key?versionId=null", "to")).await, "200");
    assert_eq!(fixture.outcome(copy("bucket/key", "to").of("other")).await, "200");
    assert_eq!(fs::read(fixture.root.path().join("other/to")).unwrap(), b"x");
    assert_eq!(fixture.outcome(copy("bucket/key", "a//b")).await, "400 InvalidArgument");
}

#[tokio::test]
async fn a_copys_checksum_is_of_its_bytes() {
    let fixture = fixture();
    let crc = "y/Q5Jg==";
    fixture.ask(put("key", b"123456789").header("x-amz-checksum-crc32", crc)).await;
    let told = fixture.ask(copy("bucket/key", "same")).await;
    assert_eq!(told.first("ChecksumCRC32"), crc);
    let other = copy("bucket/key", "other").header("x-amz-checksum-algorithm", "CRC32C");
    assert_eq!(fixture.ask(other).await.first("ChecksumCRC32C"), "4waSgw==");
    let head = ask(Method::HEAD, "other").header("x-amz-checksum-mode", "ENABLED");
    let head = fixture.ask(head).await;
    assert_eq!(head.header("x-amz-checksum-crc32c"), Some("4waSgw=="));
    assert_eq!(head.header("x-amz-checksum-crc32"), None);
    let unknown = copy("bucket/key", "x").header("x-amz-checksum-algorithm", "MD4");
    assert_eq!(fixture.outcome(unknown).await, "400 InvalidRequest");
}
