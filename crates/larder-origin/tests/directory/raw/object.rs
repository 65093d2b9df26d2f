//! PUT, GET, HEAD and DELETE of one object.

use super::{ask, get, put};
use crate::fixture::{MIB, fixture, tmp_is_empty};
use bytes::Bytes;
use http::Method;
use larder_model::{BodyBroken, OriginError};
use std::fs;

#[tokio::test]
async fn a_put_is_read_back_with_its_headers() {
    let fixture = fixture();
    let request = put("a b/é+%.bin", b"content")
        .header("content-type", "text/odd")
        .header("content-encoding", "gzip")
        .header("cache-control", "no-store")
        .header("x-amz-meta-one", "1")
        .header("x-amz-meta-latin", b"caf\xe9")
        .header("x-amz-storage-class", "STANDARD")
        .header("x-amz-acl", "private")
        .header("content-md5", "mgNkuembtIDdJeHwKEyFVQ==")
        .query("x-id", "PutObject");
    let told = fixture.ask(request).await;
    assert_eq!(told.outcome(), "200");
    let tag = told.tag();
    for method in [Method::GET, Method::HEAD] {
        let told = fixture.ask(ask(method.clone(), "a b/é+%.bin")).await;
        assert_eq!((told.status, told.tag()), (200, tag.clone()));
        assert_eq!(told.header("content-length"), Some("7"));
        assert_eq!(told.header("content-type"), Some("text/odd"));
        assert_eq!(told.header("content-encoding"), Some("gzip"));
        assert_eq!(told.header("cache-control"), Some("no-store"));
        assert_eq!(told.header("x-amz-meta-one"), Some("1"));
        assert_eq!(told.headers["x-amz-meta-latin"].as_bytes(), b"caf\xe9");
        assert_eq!(told.body, if method == Method::GET { b"content".to_vec() } else { vec![] });
    }
}

#[tokio::test]
async fn a_streamed_body_is_put_whole() {
    let fixture = fixture();
    let pieces: Vec<_> = (0..40_u8).map(|n| Ok(Bytes::from(vec![n; 100_003]))).collect();
    let expected: Vec<u8> = (0..40_u8).flat_map(|n| vec![n; 100_003]).collect();
    let request = ask(Method::PUT, "key").stream(expected.len(), pieces);
    assert_eq!(fixture.outcome(request).await, "200");
    assert!(fixture.ask(get("key")).await.body == expected);
    assert_eq!(fixture.outcome(put("empty", b"")).await, "200");
    assert_eq!(fixture.ask(get("empty")).await.body, b"");
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_the_old_object_and_nothing_else() {
    let fixture = fixture();
    assert_eq!(fixture.outcome(put("key", b"old").header("x-amz-meta-a", "1")).await, "200");
    let before = fixture.private("");
    let full = || Ok(Bytes::from(vec![1; 2 * MIB]));
    let broken = ask(Method::PUT, "key").stream(4 * MIB, vec![full(), Err(BodyBroken)]);
    assert!(matches!(fixture.try_ask(broken).await, Err(OriginError::BodyBroken)));
    let at_once = ask(Method::PUT, "key").stream(4, vec![Err(BodyBroken)]);
    assert!(matches!(fixture.try_ask(at_once).await, Err(OriginError::BodyBroken)));
    let short = ask(Method::PUT, "key").stream(4 * MIB, vec![full()]);
    assert_eq!(fixture.outcome(short).await, "400 IncompleteBody");
    let long = ask(Method::PUT, "key").stream(MIB, vec![full()]);
    assert_eq!(fixture.outcome(long).await, "400 IncompleteBody");
    let wrong = put("key", b"new").header("content-md5", "mgNkuembtIDdJeHwKEyFVQ==");
    assert_eq!(fixture.outcome(wrong).await, "400 BadDigest");
    let odd = put("key", b"new").header("content-md5", "mgNk");
    assert_eq!(fixture.outcome(odd).await, "400 InvalidDigest");
    let told = fixture.ask(get("key")).await;
    assert_eq!((told.text(), told.header("x-amz-meta-a")), ("old", Some("1")));
    assert!(tmp_is_empty(&fixture));
    assert_eq!(fixture.private(""), before);
    let new = ask(Method::PUT, "never").stream(2, vec![Err(BodyBroken)]);
    assert!(fixture.try_ask(new).await.is_err());
    assert_eq!(fixture.keys().await, ["key"]);
}

#[tokio::test]
async fn more_than_five_gib_are_refused_unread() {
    let fixture = fixture();
    let request = ask(Method::PUT, "key").stream(5 * 1024 * MIB + 1, vec![Err(BodyBroken)]);
    assert_eq!(fixture.outcome(request).await, "400 EntityTooLarge");
}

#[tokio::test]
async fn preconditions_of_a_put_hold_or_refuse() {
    let fixture = fixture();
    let put = |name: &str, value: &str| put("key", b"x").header(name, value);
    assert_eq!(fixture.outcome(put("if-match", "\"other\"")).await, "404 NoSuchKey");
    let tag = fixture.ask(put("if-none-match", "*")).await.tag();
    assert_eq!(fixture.outcome(put("if-none-match", "*")).await, "412 PreconditionFailed");
    assert_eq!(fixture.outcome(put("if-match", "\"other\"")).await, "412 PreconditionFailed");
    assert_eq!(fixture.outcome(put("if-match", &tag)).await, "200");
    let tag = fixture.ask(ask(Method::HEAD, "key")).await.tag();
    assert_eq!(fixture.outcome(put("if-match", tag.trim_matches('"'))).await, "200");
    assert_eq!(fixture.outcome(put("if-none-match", &tag)).await, "501 NotImplemented");
    assert_eq!(fixture.outcome(put("if-match", "*")).await, "501 NotImplemented");
    assert_eq!(fixture.outcome(put("if-match", "\"a\", \"b\"")).await, "501 NotImplemented");
    assert!(tmp_is_empty(&fixture));
}

#[tokio::test]
async fn a_key_that_no_folder_holds_is_refused_and_deleted_all_the_same() {
    let fixture = fixture();
    fixture.write("file", "x");
    fixture.write("dir/file", "x");
    for odd in ["a//b", "/a", "a/", "..", "a/../b", ".larder/x", "a\0b", "file/below", "dir"] {
        assert_eq!(fixture.outcome(put(odd, b"x")).await, "400 InvalidArgument", "{odd:?}");
        assert_eq!(fixture.outcome(get(odd)).await, "404 NoSuchKey", "{odd:?}");
        assert_eq!(fixture.outcome(ask(Method::DELETE, odd)).await, "204", "{odd:?}");
    }
    assert_eq!(fixture.keys().await, ["dir/file", "file"]);
}

#[tokio::test]
async fn ranges_conditions_and_overrides_of_a_get() {
    let fixture = fixture();
    let tag = fixture.ask(put("key", b"0123456789")).await.tag();
    let check = async |request: super::Ask, status: u16, body: &str| {
        let told = fixture.ask(request).await;
        assert_eq!((told.status, told.text()), (status, body));
        told
    };
    let told = check(get("key").header("range", "bytes=2-4"), 206, "234").await;
    assert_eq!(told.header("content-range"), Some("bytes 2-4/10"));
    check(get("key").header("range", "bytes=-3"), 206, "789").await;
    check(get("key").header("range", "bytes=5-1"), 200, "0123456789").await;
    check(get("key").query("partNumber", 1), 206, "0123456789").await;
    check(get("key").header("if-none-match", &tag), 304, "").await;
    let told = check(get("key").query("response-content-type", "a/b"), 200, "0123456789").await;
    assert_eq!(told.header("content-type"), Some("a/b"));
    check(get("key").query("versionId", "null"), 200, "0123456789").await;
    let ranged = get("key").header("range", "bytes=0-0").header("if-range", "\"other\"");
    check(ranged, 200, "0123456789").await;

    let refused = async |request: super::Ask, expected: &str| {
        assert_eq!(fixture.outcome(request).await, expected);
    };
    refused(get("key").header("range", "bytes=10-"), "416 InvalidRange").await;
    refused(get("key").query("partNumber", 2), "416 InvalidPartNumber").await;
    refused(get("key").query("partNumber", "x"), "400 InvalidArgument").await;
    refused(get("key").header("if-match", "\"other\""), "412 PreconditionFailed").await;
    refused(get("key").query("versionId", "v1"), "404 NoSuchVersion").await;
    refused(get("key").query("versionId", ""), "400 InvalidArgument").await;
    refused(get("none"), "404 NoSuchKey").await;
    refused(get("key").of("nowhere"), "404 NoSuchBucket").await;
    refused(ask(Method::HEAD, "none"), "404").await;
    refused(get("key").query("response-content-type", "a\nb"), "400 InvalidArgument").await;
    fixture.ask(put("empty", b"")).await;
    check(get("empty").query("partNumber", 1), 200, "").await;
}

#[tokio::test]
async fn a_delete_may_have_a_condition() {
    let fixture = fixture();
    let tag = fixture.ask(put("key", b"x")).await.tag();
    let delete = |name: &str| ask(Method::DELETE, name);
    let other = delete("key").header("if-match", "\"other\"");
    assert_eq!(fixture.outcome(other).await, "412 PreconditionFailed");
    assert_eq!(fixture.outcome(delete("none").header("if-match", "*")).await, "404 NoSuchKey");
    assert_eq!(fixture.outcome(delete("key").query("versionId", "v1")).await, "204");
    assert_eq!(fixture.keys().await, ["key"]);
    assert_eq!(fixture.outcome(delete("key").header("if-match", &tag)).await, "204");
    assert_eq!(fixture.outcome(delete("key")).await, "204");
    assert_eq!(fixture.outcome(delete("key").of("nowhere")).await, "404 NoSuchBucket");
    fixture.ask(put("key", b"x")).await;
    assert_eq!(fixture.outcome(delete("key").query("versionId", "null")).await, "204");
    assert!(fixture.keys().await.is_empty());
    assert!(fixture.private("").is_empty());
}

#[tokio::test]
async fn attributes_are_told() {
    let fixture = fixture();
    let sum = "y/Q5Jg==";
    let told = fixture.ask(put("key", b"123456789").header("x-amz-checksum-crc32", sum)).await;
    let all = "ETag,Checksum,ObjectParts,StorageClass, ObjectSize";
    let request =
        |names: &str| get("key").query("attributes", "").header("x-amz-object-attributes", names);
    let attributes = fixture.ask(request(all)).await;
    assert_eq!(attributes.first("ETag"), told.tag().trim_matches('"'));
    assert_eq!(attributes.first("ChecksumCRC32"), sum);
    assert_eq!(attributes.first("ObjectSize"), "9");
    assert!(attributes.header("last-modified").is_some());
    let some = fixture.ask(request("ObjectSize")).await;
    assert!(!some.text().contains("ETag") && !some.text().contains("Checksum"));
    assert_eq!(fixture.outcome(request("Size")).await, "400 InvalidArgument");
    let none = get("key").query("attributes", "");
    assert_eq!(fixture.outcome(none).await, "400 InvalidArgument");
}

#[tokio::test]
async fn what_a_killed_process_left_is_in_nobodys_way() {
    let fixture = fixture();
    // A PUT that was killed after the folders were made and before the rename; a half-written
    // sidecar's temporary file; an upload without its record.
    fs::create_dir_all(fixture.bucket().join("a/b")).unwrap();
    fixture.write(".larder/tmp/0123", "half of an obj");
    fixture.write(".larder/uploads/0123/part.00001.x", "x");
    assert!(fixture.keys().await.is_empty());
    assert_eq!(fixture.outcome(put("a", b"file")).await, "200");
    assert_eq!(fixture.keys().await, ["a"]);
    let uploads = super::ask_bucket(Method::GET).query("uploads", "");
    assert!(fixture.ask(uploads).await.all("Upload").is_empty());
    assert_eq!(fixture.outcome(ask(Method::DELETE, "a")).await, "204");
    assert_eq!(fixture.outcome(super::ask_bucket(Method::DELETE)).await, "204");
    assert!(!fixture.bucket().exists());
}
