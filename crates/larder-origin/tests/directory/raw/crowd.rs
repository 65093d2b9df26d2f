//! Many requests at once.

use super::{Ask, ask, ask_bucket, get, put};
use crate::fixture::{MIB, fixture, tmp_is_empty};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use http::Method;
use larder_model::Origin as _;
use std::collections::HashSet;

/// Of two MiB, in pieces, so that writers take turns.
fn body(key: &str, byte: u8) -> Ask {
    let pieces = (0..32).map(|_| Ok(Bytes::from(vec![byte; MIB / 16]))).collect();
    ask(Method::PUT, key).stream(2 * MIB, pieces).header("x-amz-meta-byte", byte.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_writers_of_one_key_one_wins_whole_with_its_headers() {
    let fixture = fixture();
    for _ in 0..5 {
        let puts = (0..8).map(|byte| fixture.ask(body("key", byte)));
        let tags: HashSet<_> = join_all(puts).await.iter().map(super::Told::tag).collect();
        assert_eq!(tags.len(), 8);
        let told = fixture.ask(get("key")).await;
        assert!(tags.contains(&told.tag()));
        let byte = told.body[0];
        assert!(told.body.len() == 2 * MIB && told.body.iter().all(|b| *b == byte));
        assert_eq!(told.header("x-amz-meta-byte"), Some(byte.to_string().as_str()));
        assert_eq!(fixture.private("").len(), 1, "one sidecar is left, and no temporary file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_writers_gets_one_version_or_an_error() {
    let fixture = fixture();
    fixture.ask(body("key", 0)).await;
    let writer = async {
        for byte in 1..20 {
            assert_eq!(fixture.ask(body("key", byte)).await.status, 200);
        }
    };
    let reader = async {
        let mut whole = 0;
        for _ in 0..40 {
            let Ok(told) = fixture.try_ask(get("key")).await else { continue };
            let byte = told.body[0];
            assert!(told.body.len() == 2 * MIB && told.body.iter().all(|b| *b == byte));
            assert_eq!(told.header("x-amz-meta-byte"), Some(byte.to_string().as_str()));
            whole += 1;
        }
        whole
    };
    let ((), whole) = join(writer, reader).await;
    assert!(whole > 0);
}

#[tokio::test]
async fn a_reader_that_is_overtaken_is_cut_short() {
    let fixture = fixture();
    fixture.ask(body("key", 1)).await;
    let mut answer = fixture.origin.raw(get("key").0).await.unwrap();
    let first = answer.body.next().await.unwrap().unwrap();
    assert!(first.len() < 2 * MIB);
    fixture.ask(body("key", 2)).await;
    assert!(answer.body.next().await.unwrap().is_err());
    assert!(answer.body.next().await.is_none());
}

#[tokio::test]
async fn tags_of_one_key_never_come_again() {
    let fixture = fixture();
    let mut seen = HashSet::new();
    for round in 0..200_u8 {
        let tag = fixture.ask(put("key", &[round])).await.tag();
        assert!(seen.insert(tag), "round {round}: another content had this tag");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_uploads_of_one_part_the_one_that_is_listed_is_there() {
    let fixture = fixture();
    let create = ask(Method::POST, "key").query("uploads", "");
    let id = fixture.ask(create).await.first("UploadId");
    let part = |byte: u8| {
        let ask = ask(Method::PUT, "key").query("partNumber", 1).query("uploadId", &id);
        ask.whole(&[byte; 100])
    };
    let tags: HashSet<_> = join_all((0..16).map(|byte| fixture.ask(part(byte))))
        .await
        .iter()
        .map(super::Told::tag)
        .collect();
    let told = fixture.ask(get("key").query("uploadId", &id)).await;
    assert_eq!(told.all("PartNumber"), ["1"]);
    let tag = told.first("ETag");
    assert!(tags.contains(&tag.replace("&quot;", "\"")));

    // Of many that complete it, and one that aborts it, one does.
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let complete = || ask(Method::POST, "key").query("uploadId", &id).whole(document.as_bytes());
    let abort = ask(Method::DELETE, "key").query("uploadId", &id);
    let all = (0..8).map(|_| complete()).chain([abort]).map(|ask| fixture.outcome(ask));
    let outcomes = join_all(all).await;
    let done = outcomes.iter().filter(|outcome| outcome.starts_with('2')).count();
    let gone = outcomes.iter().filter(|outcome| *outcome == "404 NoSuchUpload").count();
    assert_eq!((done, gone), (1, 8), "{outcomes:?}");
    assert!(fixture.private("").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_not_brought_back_by_a_late_write() {
    let fixture = fixture();
    for _ in 0..20 {
        let delete = async {
            loop {
                match fixture.outcome(ask_bucket(Method::DELETE)).await.as_str() {
                    "204" => break,
                    // The write was faster, or is under way.
                    "409 BucketNotEmpty" => {
                        fixture.outcome(ask(Method::DELETE, "a/key")).await;
                    }
                    "409 OperationAborted" => {}
                    other => panic!("{other}"),
                }
            }
        };
        let writes = join_all((0..4).map(|byte| fixture.try_ask(put("a/key", &[byte]))));
        let ((), writes) = join(delete, writes).await;
        for told in writes.into_iter().flatten() {
            assert!(["200", "404 NoSuchBucket"].contains(&told.outcome().as_str()));
        }
        // A write that came after the deletion found no bucket, so there is none.
        if !fixture.bucket().exists() {
            assert_eq!(fixture.outcome(ask_bucket(Method::PUT)).await, "200");
        }
        assert!(fixture.keys().await.is_empty() && tmp_is_empty(&fixture));
    }
}
