//! PUT and DELETE by the origin's own methods.

use crate::fixture::{MIB, bucket, code, fixture, key, pieces, put_request, tmp_is_empty};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use larder_model::ETag;
use larder_origin::{Precondition, PutRequest};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_put_is_read_back_with_its_headers() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", "text/odd"),
        ("content-encoding", "gzip"),
        ("x-amz-meta-one", "1"),
        ("authorization", "no"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let request = PutRequest { headers, length: Some(10), ..put_request("a/b/key.html") };
    let tag = fixture.origin.put(request, pieces(&[b"01234", b"", b"56789"])).await.unwrap();
    let meta = fixture.head("a/b/key.html").await.unwrap();
    assert_eq!(meta.etag, Some(tag));
    assert_eq!(meta.headers["content-type"], "text/odd");
    assert_eq!(meta.headers["content-encoding"], "gzip");
    assert_eq!(meta.headers["x-amz-meta-one"], "1");
    assert!(!meta.headers.contains_key("authorization"));
    assert_eq!(fixture.get("a/b/key.html").await.unwrap(), "0123456789");
    assert_eq!(fixture.keys().await, ["a/b/key.html"]);
    assert_eq!(fixture.private("meta").len(), 1);

    // Replaced without headers: the old ones do not stay, neither in answers nor on the disk.
    fixture.put("a/b/key.html", b"new").await.unwrap();
    let meta = fixture.head("a/b/key.html").await.unwrap();
    assert_eq!(meta.headers["content-type"], "text/html");
    assert!(!meta.headers.contains_key("x-amz-meta-one"));
    assert!(fixture.private("meta").is_empty() && tmp_is_empty(&fixture));
}

#[tokio::test]
async fn headers_do_not_outlive_a_change_by_somebody_else() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/odd"));
    let request = PutRequest { headers, ..put_request("key") };
    fixture.origin.put(request, pieces(&[b"x"])).await.unwrap();
    let new = fixture.bucket().join("new");
    fs::write(&new, "y").unwrap();
    fs::rename(new, fixture.bucket().join("key")).unwrap();
    let meta = fixture.head("key").await.unwrap();
    assert_eq!(meta.headers["content-type"], "binary/octet-stream");
}

#[tokio::test]
async fn a_put_that_is_not_as_announced_leaves_nothing() {
    let fixture = fixture();
    fixture.put("key", b"old").await.unwrap();
    let short = PutRequest { length: Some(4), ..put_request("key") };
    let wrong = PutRequest { md5: Some([0; 16]), ..put_request("key") };
    let whole = PutRequest { length: Some(3), ..put_request("key") };
    assert_eq!(code(fixture.origin.put(short, pieces(&[b"abc"])).await), "400 IncompleteBody");
    assert_eq!(code(fixture.origin.put(wrong, pieces(&[b"abc"])).await), "400 BadDigest");
    let broken = stream::iter([Ok(Bytes::from_static(b"abc")), Err(io::Error::other("gone"))]);
    assert_eq!(code(fixture.origin.put(whole, broken.boxed()).await), "400 IncompleteBody");
    assert_eq!(fixture.get("key").await.unwrap(), "old");
    assert!(tmp_is_empty(&fixture));
    // The MD5 of "abc" (RFC 1321, A.5).
    let md5 = Some(hex::decode("900150983cd24fb0d6963f7d28e17f72").unwrap().try_into().unwrap());
    let right = PutRequest { md5, ..put_request("key") };
    assert_eq!(code(fixture.origin.put(right, pieces(&[b"abc"])).await), "ok");
}

#[tokio::test]
async fn a_cancelled_put_leaves_nothing() {
    let fixture = fixture();
    let begun = stream::iter([Ok(Bytes::from(vec![1; 2 * MIB]))]).chain(stream::pending());
    let put = fixture.origin.put(put_request("key"), begun.boxed());
    let seen = async {
        let deadline = Instant::now() + Duration::from_secs(10);
        while tmp_is_empty(&fixture) {
            assert!(Instant::now() < deadline, "no temporary file was seen");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = put => panic!("a body without an end was taken"),
        () = seen => {}
    }
    assert!(tmp_is_empty(&fixture));
    assert_eq!(code(fixture.get("key").await), "404 NoSuchKey");
}

#[tokio::test]
async fn preconditions_hold_or_refuse() {
    let fixture = fixture();
    let matches = |tag: &ETag| Precondition::Matches(tag.clone());
    let other = ETag::new("\"other\"").unwrap();
    let put = |precondition| fixture.put_if("key", b"x", precondition);
    assert_eq!(code(put(matches(&other)).await), "404 NoSuchKey");
    let tag = put(Precondition::Absent).await.unwrap();
    assert_eq!(code(put(Precondition::Absent).await), "412 PreconditionFailed");
    assert_eq!(code(put(matches(&other)).await), "412 PreconditionFailed");
    let new = put(matches(&tag)).await.unwrap();
    assert_ne!(new, tag);
    assert_eq!(code(put(matches(&tag)).await), "412 PreconditionFailed");
    assert!(tmp_is_empty(&fixture));
}

#[tokio::test]
async fn of_many_writers_if_absent_one_wins() {
    let fixture = fixture();
    let bodies: Vec<_> = (0..16_u8).map(|n| [n]).collect();
    let puts = bodies.iter().map(|body| fixture.put_if("a/key", body, Precondition::Absent));
    let done = futures_util::future::join_all(puts).await;
    assert_eq!(done.iter().filter(|put| put.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_key_cannot_be_the_folder_of_another() {
    let fixture = fixture();
    fixture.put("a", b"x").await.unwrap();
    assert_eq!(code(fixture.put("a/b", b"x").await), "400 InvalidArgument");
    fixture.origin.delete(&bucket(), &key("a")).await.unwrap();
    fixture.put("a/b/c", b"x").await.unwrap();
    assert_eq!(code(fixture.put("a", b"x").await), "400 InvalidArgument");
    fixture.origin.delete(&bucket(), &key("a")).await.unwrap();
    assert_eq!(fixture.keys().await, ["a/b/c"]);
    // Folders without an object are in nobody's way.
    fs::remove_file(fixture.bucket().join("a/b/c")).unwrap();
    fixture.put("a", b"x").await.unwrap();
    assert_eq!(fixture.keys().await, ["a"]);
}

#[tokio::test]
async fn a_delete_removes_the_object_and_its_empty_folders() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-meta-a", HeaderValue::from_static("b"));
    let request = PutRequest { headers, ..put_request("a/b/c") };
    fixture.origin.put(request, pieces(&[b"x"])).await.unwrap();
    fixture.put("a/d", b"x").await.unwrap();
    fixture.origin.delete(&bucket(), &key("a/b/c")).await.unwrap();
    fixture.origin.delete(&bucket(), &key("a/b/c")).await.unwrap();
    assert_eq!(fixture.keys().await, ["a/d"]);
    assert!(!fixture.bucket().join("a/b").exists());
    assert!(fixture.private("meta").is_empty());
    fixture.origin.delete(&bucket(), &key("a/d")).await.unwrap();
    assert!(!fixture.bucket().join("a").exists() && fixture.bucket().exists());
}
