//! Tags of objects.

use super::{ask, get, put};
use crate::fixture::fixture;
use http::Method;

fn tagging(tags: &[(&str, &str)]) -> super::Ask {
    let tags: String = tags
        .iter()
        .map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>"))
        .collect();
    let document = format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
    ask(Method::PUT, "key").query("tagging", "").whole(document.as_bytes())
}

#[tokio::test]
async fn tags_are_put_told_and_deleted_without_a_change_of_the_object() {
    let fixture = fixture();
    let request = put("key", b"x").header("x-amz-meta-a", "1").header("x-amz-tagging", "a=1&b=%26");
    let tag = fixture.ask(request).await.tag();
    let tags = || get("key").query("tagging", "");
    let told = fixture.ask(tags()).await;
    assert_eq!((told.all("Key"), told.all("Value")), (vec!["a", "b"], vec!["1", "&amp;"]));
    assert_eq!(fixture.outcome(tagging(&[("c", "é &lt;"), ("d", "")])).await, "200");
    let told = fixture.ask(tags()).await;
    assert_eq!((told.all("Key"), told.all("Value")), (vec!["c", "d"], vec!["é &lt;", ""]));
    let head = fixture.ask(ask(Method::HEAD, "key")).await;
    assert_eq!((head.tag(), head.header("x-amz-meta-a")), (tag.clone(), Some("1")));
    assert_eq!(head.header("x-amz-tagging-count"), Some("2"));
    let delete = ask(Method::DELETE, "key").query("tagging", "");
    assert_eq!(fixture.outcome(delete).await, "204");
    assert!(fixture.ask(tags()).await.all("Tag").is_empty());
    let head = fixture.ask(ask(Method::HEAD, "key")).await;
    assert_eq!((head.tag(), head.header("x-amz-meta-a")), (tag, Some("1")));
    assert_eq!(head.header("x-amz-tagging-count"), None);
}

#[tokio::test]
async fn an_object_without_tags_has_an_empty_set() {
    let fixture = fixture();
    fixture.write("key", "made by somebody else");
    let told = fixture.ask(get("key").query("tagging", "")).await;
    assert!(told.text().contains("<TagSet></TagSet>"), "{}", told.text());
    assert_eq!(fixture.outcome(tagging(&[("a", "b")])).await, "200");
    assert_eq!(fixture.ask(get("key").query("tagging", "")).await.all("Key"), ["a"]);
    // They are the file's: not the next one's of that name.
    assert_eq!(fixture.outcome(put("key", b"new")).await, "200");
    assert!(fixture.ask(get("key").query("tagging", "")).await.all("Key").is_empty());
    assert!(fixture.private("").is_empty());
}

#[tokio::test]
async fn tags_that_are_none_change_nothing() {
    let fixture = fixture();
    let many: Vec<(String, &str)> = (0..11).map(|n| (n.to_string(), "")).collect();
    let many: Vec<_> = many.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    assert_eq!(fixture.outcome(tagging(&[("a", "b")])).await, "404 NoSuchKey");
    fixture.ask(put("key", b"x").header("x-amz-tagging", "kept=1")).await;
    assert_eq!(fixture.outcome(tagging(&many)).await, "400 BadRequest");
    assert_eq!(fixture.outcome(tagging(&[("a", ""), ("a", "")])).await, "400 InvalidTag");
    assert_eq!(fixture.outcome(tagging(&[("", "")])).await, "400 InvalidTag");
    let put_raw =
        |document: &str| ask(Method::PUT, "key").query("tagging", "").whole(document.as_bytes());
    for document in ["", "<Tagging/>", "<Tagging><TagSet><Tag/></TagSet></Tagging>", "<TagSet/>"] {
        assert_eq!(fixture.outcome(put_raw(document)).await, "400 MalformedXML", "{document}");
    }
    let long = put("other", b"x").header("x-amz-tagging", "a=1&a=2");
    assert_eq!(fixture.outcome(long).await, "400 InvalidTag");
    assert_eq!(fixture.ask(get("key").query("tagging", "")).await.all("Key"), ["kept"]);
    assert_eq!(fixture.keys().await, ["key"]);
    let missing = get("none").query("tagging", "");
    assert_eq!(fixture.outcome(missing).await, "404 NoSuchKey");
}
