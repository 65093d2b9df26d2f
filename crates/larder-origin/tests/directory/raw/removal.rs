//! DeleteObjects.

use super::{ask_bucket, put};
use crate::fixture::{Fixture, fixture};
use http::Method;
use larder_model::{BodyBroken, OriginError};

fn delete(objects: &str) -> super::Ask {
    let document = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{objects}</Delete>"
    );
    ask_bucket(Method::POST).query("delete", "").whole(document.as_bytes())
}

async fn with_keys(keys: &[&str]) -> Fixture {
    let fixture = fixture();
    for key in keys {
        assert_eq!(fixture.outcome(put(key, b"x")).await, "200");
    }
    fixture
}

#[tokio::test]
async fn each_key_has_an_outcome_of_its_own() {
    let fixture = with_keys(&["a", "b<&>", "c", "d", "e"]).await;
    let tag = fixture.ask(super::get("d")).await.tag().replace('"', "&quot;");
    let told = fixture
        .ask(delete(&format!(
            "<Object><Key>a</Key></Object>\
             <Object><Key>b&lt;&amp;&gt;</Key><VersionId>null</VersionId></Object>\
             <Object><Key>c</Key><VersionId>v1</VersionId></Object>\
             <Object><Key>d</Key><ETag>{tag}</ETag></Object>\
             <Object><Key>e</Key><ETag>\"other\"</ETag></Object>\
             <Object><Key>none</Key></Object>\
             <Object><Key>no//file</Key></Object>\
             <Object><Key>e</Key><Size>1</Size></Object>\
             <Object><Key>{}</Key></Object>",
            "x".repeat(1025)
        )))
        .await;
    assert_eq!(told.status, 200);
    let deleted: Vec<_> = told.all("Deleted").iter().map(|inside| key_of(inside)).collect();
    assert_eq!(deleted, ["a", "b&lt;&amp;&gt;", "c", "d", "none", "no//file"]);
    assert_eq!(told.all("Code"), ["PreconditionFailed", "NotImplemented", "KeyTooLongError"]);
    assert_eq!(fixture.keys().await, ["c", "e"]);
}

fn key_of(inside: &str) -> String {
    inside.split(['<', '>']).nth(2).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_quiet_one_tells_errors_only() {
    let fixture = with_keys(&["a", "b"]).await;
    let objects = "<Quiet>true</Quiet><Object><Key>a</Key></Object>\
        <Object><Key>b</Key><ETag>other</ETag></Object>";
    let told = fixture.ask(delete(objects)).await;
    assert!(told.all("Deleted").is_empty());
    assert_eq!(told.all("Key"), ["b"]);
    assert_eq!(fixture.keys().await, ["b"]);
}

#[tokio::test]
async fn keys_are_taken_as_they_are_written() {
    let fixture = with_keys(&[" a ", "b\r\n", "é\u{1}", "c"]).await;
    let objects = "<Object>\n <Key> a </Key>\n</Object>\
        <Object><Key>b&#13;&#10;</Key></Object>\
        <Object><Key>é&#x1;</Key></Object>\
        <Object><Key><![CDATA[c]]></Key></Object>";
    assert_eq!(fixture.ask(delete(objects)).await.all("Deleted").len(), 4);
    assert!(fixture.keys().await.is_empty());
}

#[tokio::test]
async fn nonsense_deletes_nothing() {
    let fixture = with_keys(&["a"]).await;
    let object = "<Object><Key>a</Key></Object>";
    for objects in [
        String::new(),
        "<Quiet>true</Quiet>".to_owned(),
        format!("{object}<Object/>"),
        format!("{object}<Object><Key>b</Key><Key>c</Key></Object>"),
        format!("{object}<Strange/>"),
        format!("{object}<Quiet>maybe</Quiet>"),
        format!("{object}text"),
        format!("{object}<Object><Key>&unknown;</Key></Object>"),
        object.repeat(1001),
    ] {
        assert_eq!(fixture.outcome(delete(&objects)).await, "400 MalformedXML", "{objects:.80}");
    }
    let raw = |bytes: &[u8]| ask_bucket(Method::POST).query("delete", "").whole(bytes);
    let dtd = format!("<!DOCTYPE d [<!ENTITY e \"a\">]><Delete>{object}</Delete>");
    for document in [dtd.as_str(), "", "{}", "<Delete>", "<Remove/>"] {
        assert_eq!(fixture.outcome(raw(document.as_bytes())).await, "400 MalformedXML");
    }
    let large = format!("<Delete>{object}{}</Delete>", " ".repeat(2 * 1024 * 1024));
    assert_eq!(fixture.outcome(raw(large.as_bytes())).await, "400 MaxMessageLengthExceeded");
    let document = format!("<Delete>{object}</Delete>");
    let pieces = vec![Ok(document.clone().into()), Err(BodyBroken)];
    let broken = ask_bucket(Method::POST).query("delete", "").stream(document.len() + 1, pieces);
    assert!(matches!(fixture.try_ask(broken).await, Err(OriginError::BodyBroken)));
    assert_eq!(fixture.keys().await, ["a"]);
    let elsewhere = delete(object).of("nowhere");
    assert_eq!(fixture.outcome(elsewhere).await, "404 NoSuchBucket");
}

#[tokio::test]
async fn a_thousand_keys_go_at_once() {
    let fixture = fixture();
    let mut objects = String::new();
    for n in 0..1000 {
        fixture.write(&format!("k/{n}"), "x");
        objects += &format!("<Object><Key>k/{n}</Key></Object>");
    }
    assert_eq!(fixture.ask(delete(&objects)).await.all("Deleted").len(), 1000);
    assert!(fixture.keys().await.is_empty());
}
