//! Listings: buckets, objects and versions.

use super::{ask_bucket, put};
use crate::fixture::{Fixture, fixture};
use http::Method;
use larder_model::{RawBody, RawRequest};
use std::fs;

fn list() -> super::Ask {
    ask_bucket(Method::GET)
}

fn planted(keys: &[&str]) -> Fixture {
    let fixture = fixture();
    for key in keys {
        fixture.write(key, "12345");
    }
    fixture
}

#[tokio::test]
async fn buckets_are_listed() {
    let fixture = fixture();
    fs::create_dir(fixture.root.path().join("another")).unwrap();
    let told = fixture
        .ask(super::Ask(RawRequest {
            method: Method::GET,
            bucket: None,
            key: None,
            query: Vec::new(),
            headers: http::HeaderMap::new(),
            body: RawBody::Empty,
        }))
        .await;
    assert_eq!(told.all("Name"), ["another", "bucket"]);
    assert_eq!(told.all("CreationDate").len(), 2);
}

#[tokio::test]
async fn objects_are_listed_by_both_requests() {
    let fixture = planted(&["a b", "c/d", "e", "f&g"]);
    let tag = fixture.ask(super::get("e")).await.tag().replace('"', "&quot;");
    let told = fixture.ask(list()).await;
    assert_eq!(told.all("Key"), ["a b", "c/d", "e", "f&amp;g"]);
    assert_eq!((told.all("Size"), told.all("ETag")[2]), (vec!["5"; 4], tag.as_str()));
    assert_eq!(told.all("Owner").len(), 4);
    let told = fixture.ask(list().query("delimiter", "/").query("max-keys", 2)).await;
    assert_eq!((told.all("Key"), told.all("CommonPrefixes").len()), (vec!["a b"], 1));
    assert_eq!((told.first("IsTruncated"), told.first("NextMarker")), ("true".into(), "c/".into()));
    let v2 = || list().query("list-type", 2).query("encoding-type", "url");
    let told = fixture.ask(v2().query("max-keys", 3)).await;
    assert_eq!(told.all("Key"), ["a%20b", "c/d", "e"]);
    assert_eq!((told.first("KeyCount").as_str(), told.all("Owner").len()), ("3", 0));
    let token = told.first("NextContinuationToken");
    let told = fixture.ask(v2().query("continuation-token", token)).await;
    assert_eq!((told.all("Key"), told.first("IsTruncated")), (vec!["f%26g"], "false".to_owned()));
    for (name, value) in
        [("max-keys", "-1"), ("max-keys", "x"), ("encoding-type", "base64"), ("list-type", "3")]
    {
        let odd = list().query(name, value);
        assert_eq!(fixture.outcome(odd).await, "400 InvalidArgument", "{name}={value}");
    }
    let odd = v2().query("continuation-token", "%");
    assert_eq!(fixture.outcome(odd).await, "400 InvalidArgument");
    assert_eq!(fixture.outcome(list().of("nowhere")).await, "404 NoSuchBucket");
}

#[tokio::test]
async fn every_object_is_its_null_version_on_one_page() {
    let fixture = planted(&["a", "b/1", "b/2", "c", "d"]);
    let versions = || list().query("versions", "");
    let told = fixture.ask(versions()).await;
    assert_eq!(told.all("Key"), ["a", "b/1", "b/2", "c", "d"]);
    assert_eq!((told.all("VersionId"), told.all("IsLatest")), (vec!["null"; 5], vec!["true"; 5]));
    for (delimiter, max, expected) in [
        ("", 1, vec!["a", "b/1", "b/2", "c", "d"]),
        ("", 2, vec!["a", "b/1", "b/2", "c", "d"]),
        ("/", 1, vec!["a", "c", "d"]),
        ("/", 2, vec!["a", "c", "d"]),
    ] {
        let (mut seen, mut prefixes, mut next) = (Vec::new(), 0, None::<(String, Option<String>)>);
        for page in 0.. {
            assert!(page < 10, "the pages do not end");
            let mut request = versions().query("max-keys", max).query("delimiter", delimiter);
            if let Some((key, version)) = next.take() {
                request = request.query("key-marker", key);
                request = version.into_iter().fold(request, |r, v| r.query("version-id-marker", v));
            }
            let told = fixture.ask(request).await;
            seen.extend(told.all("Key").into_iter().map(str::to_owned));
            prefixes += told.all("CommonPrefixes").len();
            if told.first("IsTruncated") == "false" {
                break;
            }
            let version = told.all("NextVersionIdMarker").first().map(|id| (*id).to_owned());
            next = Some((told.first("NextKeyMarker"), version));
        }
        assert_eq!(
            (seen, prefixes),
            (expected.iter().map(|k| (*k).to_owned()).collect(), delimiter.len())
        );
    }
    let odd = versions().query("version-id-marker", "null");
    assert_eq!(fixture.outcome(odd).await, "400 InvalidArgument");
    let odd = versions().query("key-marker", "a").query("version-id-marker", "v1");
    assert_eq!(fixture.outcome(odd).await, "400 InvalidArgument");
}

#[tokio::test]
async fn what_xml_cannot_hold_is_told_by_its_reference_or_encoded() {
    let fixture = fixture();
    fixture.ask(put("a\u{1}\n<", b"x")).await;
    assert_eq!(fixture.ask(list()).await.first("Key"), "a&#x1;&#xA;&lt;");
    let encoded = fixture.ask(list().query("encoding-type", "url")).await;
    assert_eq!(encoded.first("Key"), "a%01%0A%3C");
}
