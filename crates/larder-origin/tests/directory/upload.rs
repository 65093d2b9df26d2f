//! Multipart uploads by the origin's own methods.

use crate::fixture::{MIB, bucket, code, fixture, key, open, pieces, tmp_is_empty};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue};
use larder_model::{ETag, ObjectKey};
use larder_origin::{Precondition, UploadId};

#[tokio::test]
async fn parts_become_one_object() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/odd"));
    let (bucket, key) = (bucket(), key("big/key"));
    let upload = fixture.origin.create_upload(&bucket, &key, &headers).await.unwrap();
    // A restart in between loses nothing.
    let origin = open(fixture.root.path());
    let part = |number, bytes: Vec<u8>| {
        let body = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        origin.upload_part(&bucket, &key, &upload, number, None, None, body)
    };
    let replaced = part(1, vec![0; 5 * MIB]).await.unwrap();
    let third = part(3, b"end".to_vec()).await.unwrap();
    let first = part(1, vec![1; 5 * MIB]).await.unwrap();
    assert_ne!(replaced, first);
    assert_eq!(third.as_str(), "\"7f021a1415b86f2d013b2618fb31ae53\"");
    let parts = origin.list_parts(&bucket, &key, &upload).await.unwrap();
    let seen: Vec<_> = parts.iter().map(|p| (p.number, p.size, p.etag.clone())).collect();
    assert_eq!(seen, [(1, 5 * MIB as u64, first.clone()), (3, 3, third.clone())]);
    assert!(fixture.keys().await.is_empty());

    let complete = |parts: Vec<(u32, ETag)>| {
        let (origin, bucket, key, upload) = (&origin, &bucket, &key, &upload);
        async move { origin.complete_upload(bucket, key, upload, &parts, Precondition::None).await }
    };
    assert_eq!(code(complete(vec![]).await), "400 MalformedXML");
    assert_eq!(code(complete(vec![(1, replaced)]).await), "400 InvalidPart");
    assert_eq!(code(complete(vec![(2, first.clone())]).await), "400 InvalidPart");
    let backwards = vec![(3, third.clone()), (1, first.clone())];
    assert_eq!(code(complete(backwards).await), "400 InvalidPartOrder");
    let tag = complete(vec![(1, first.clone()), (3, third.clone())]).await.unwrap();
    let meta = fixture.head("big/key").await.unwrap();
    assert_eq!((meta.etag, meta.size), (Some(tag), 5 * MIB as u64 + 3));
    assert_eq!(meta.headers["content-type"], "text/odd");
    let bytes = fixture.get("big/key").await.unwrap();
    assert!(bytes[..5 * MIB].iter().all(|b| *b == 1) && bytes.ends_with(b"end"));
    assert_eq!(code(complete(vec![(1, first)]).await), "404 NoSuchUpload");
    assert!(fixture.private("uploads").is_empty() && tmp_is_empty(&fixture));
}

#[tokio::test]
async fn small_parts_are_refused_but_at_the_end() {
    let fixture = fixture();
    let (bucket, key) = (bucket(), key("key"));
    let upload = fixture.origin.create_upload(&bucket, &key, &HeaderMap::new()).await.unwrap();
    let mut parts = Vec::new();
    for number in [1, 2] {
        let body = pieces(&[b"small"]);
        let part = fixture.origin.upload_part(&bucket, &key, &upload, number, Some(5), None, body);
        parts.push((number, part.await.unwrap()));
    }
    let done =
        fixture.origin.complete_upload(&bucket, &key, &upload, &parts, Precondition::None).await;
    assert_eq!(code(done), "400 EntityTooSmall");
    let odd = fixture.origin.upload_part(&bucket, &key, &upload, 0, None, None, pieces(&[b"x"]));
    assert_eq!(code(odd.await), "400 InvalidArgument");
    let short =
        fixture.origin.upload_part(&bucket, &key, &upload, 1, Some(9), None, pieces(&[b"x"]));
    assert_eq!(code(short.await), "400 IncompleteBody");
    let left = fixture.origin.list_parts(&bucket, &key, &upload).await.unwrap();
    assert_eq!(left.iter().map(|part| part.size).collect::<Vec<_>>(), [5, 5]);
}

#[tokio::test]
async fn an_aborted_or_foreign_upload_is_unknown() {
    let fixture = fixture();
    let (bucket, one, other) = (bucket(), key("one"), key("other"));
    let upload = fixture.origin.create_upload(&bucket, &one, &HeaderMap::new()).await.unwrap();
    let list = |key: &ObjectKey, upload: &UploadId| {
        let (origin, bucket) = (&fixture.origin, &bucket);
        let (key, upload) = (key.clone(), upload.clone());
        async move { code(origin.list_parts(bucket, &key, &upload).await) }
    };
    assert_eq!(list(&one, &upload).await, "ok");
    assert_eq!(list(&other, &upload).await, "404 NoSuchUpload");
    assert!(UploadId::new("../../../etc").is_none());
    let unknown = UploadId::new(&"0".repeat(32)).unwrap();
    assert_eq!(list(&one, &unknown).await, "404 NoSuchUpload");
    fixture.origin.abort_upload(&bucket, &one, &upload).await.unwrap();
    assert_eq!(list(&one, &upload).await, "404 NoSuchUpload");
    let again = fixture.origin.abort_upload(&bucket, &one, &upload).await;
    assert_eq!(code(again), "404 NoSuchUpload");
    assert!(fixture.private("uploads").is_empty());
}
