//! Listings and the other requests on buckets, seen by keys with more and with fewer grants.

use super::support::{Ask, Node, Reply, Setup, rules};
use std::sync::atomic::Ordering;

const KEYS: [&str; 9] = [
    "images/a",
    "images/train/1",
    "images/train/2",
    "images/train/3",
    "images/val/1",
    "images/z",
    "secret/1",
    "secret/2",
    "text/1",
];

async fn node(grants: &[(&str, &str)]) -> Node {
    paged(grants, 0).await
}

async fn paged(grants: &[(&str, &str)], page: u64) -> Node {
    let rules = rules(
        &[
            ("all", "data", "", None),
            ("images", "data", "images/", None),
            ("train", "data", "images/train/", None),
            ("secret", "data", "secret/", None),
            ("pics", "data", "images/", Some("pictures")),
            ("shut", "closed", "", None),
        ],
        grants,
    );
    let mut setup = Setup { rules, ..Setup::default() };
    setup.double = super::double::Double { page, ..Default::default() };
    for key in KEYS {
        setup.double.put("data", key, key);
    }
    setup.double.put("closed", "k", "k");
    Node::with(setup).await
}

async fn list(ask: Ask) -> Reply {
    let reply = ask.send().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/xml"));
    reply
}

fn prefixes(reply: &Reply) -> Vec<String> {
    let mut found = Vec::new();
    for part in reply.elements("CommonPrefixes") {
        let (_, rest) = part.split_once("<Prefix>").unwrap();
        found.push(rest.split_once("</Prefix>").unwrap().0.to_owned());
    }
    found
}

/// Everything that a lister finds that goes on until it is told that there is no more.
async fn walk(node: &Node, query: &str, v2: bool) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut common) = (Vec::new(), Vec::new());
    let mut next: Option<String> = None;
    for _ in 0..50 {
        let mut ask = node.get(&format!("/data?{query}"));
        if v2 {
            ask = ask.query("list-type", "2");
        }
        if let Some(next) = &next {
            ask = ask.query(if v2 { "continuation-token" } else { "marker" }, next);
        }
        let reply = list(ask).await;
        keys.extend(reply.elements("Key"));
        common.extend(prefixes(&reply));
        if reply.element("IsTruncated").as_deref() == Some("false") {
            return (keys, common);
        }
        let told = if v2 { "NextContinuationToken" } else { "NextMarker" };
        next = reply.element(told).or_else(|| reply.elements("Key").pop());
        assert!(next.is_some(), "{}", reply.text());
    }
    panic!("the listing does not end: {keys:?} {common:?}");
}

#[tokio::test]
async fn a_listing_has_the_fields_of_its_dialect() {
    let node = node(&[
        ("TRAINER", "all"),
        ("TRAINER", "images"),
        ("TRAINER", "train"),
        ("TRAINER", "secret"),
    ])
    .await;
    let v1 = list(node.get("/data?prefix=images/&delimiter=/&max-keys=2")).await;
    assert_eq!(v1.elements("Key"), ["images/a"]);
    assert_eq!(prefixes(&v1), ["images/train/"]);
    assert_eq!(v1.element("NextMarker").as_deref(), Some("images/train/"));
    assert_eq!(v1.element("IsTruncated").as_deref(), Some("true"));
    assert_eq!(v1.element("Marker").as_deref(), Some(""));
    assert_eq!(v1.element("ETag").as_deref(), Some("&quot;tag&quot;"));
    assert_eq!(v1.element("LastModified").as_deref(), Some("2013-05-24T00:00:00.000Z"));
    assert_eq!(v1.element("ID").as_deref(), Some("o1"));
    assert_eq!(v1.element("KeyCount"), None);
    let v2 = list(node.get("/data?list-type=2&max-keys=2&start-after=images/train/2")).await;
    assert_eq!(v2.elements("Key"), ["images/train/3", "images/val/1"]);
    assert_eq!(v2.element("KeyCount").as_deref(), Some("2"));
    assert_eq!(v2.element("StartAfter").as_deref(), Some("images/train/2"));
    assert_eq!(v2.element("Owner"), None);
    assert!(v2.element("NextContinuationToken").is_some());
    let owners = list(node.get("/data?list-type=2&max-keys=1&fetch-owner=true")).await;
    assert_eq!(owners.element("ID").as_deref(), Some("o1"));
    let none = list(node.get("/data?max-keys=0")).await;
    assert_eq!(none.element("IsTruncated").as_deref(), Some("false"));
    for (query, what) in [
        ("max-keys=x", "x"),
        ("max-keys=-1", "-1"),
        ("encoding-type=base64", "base64"),
        ("list-type=2&continuation-token=", "token"),
    ] {
        node.get(&format!("/data?{query}")).send().await.expect(400, "InvalidArgument", what);
    }
}

#[tokio::test]
async fn a_listing_can_be_encoded() {
    let rules = rules(&[("data", "data", "", None)], &[("TRAINER", "data")]);
    let mut setup = Setup { rules, ..Setup::default() };
    setup.double = super::double::Double::default();
    setup.double.put("data", "a b+c/\u{1}<ü>", "1");
    let node = Node::with(setup).await;
    let encoded = list(node.get("/data?encoding-type=url").query("prefix", "a b")).await;
    assert_eq!(encoded.elements("Key"), ["a%20b%2Bc/%01%3C%C3%BC%3E"]);
    assert_eq!(encoded.element("Prefix").as_deref(), Some("a%20b"));
    assert_eq!(encoded.element("EncodingType").as_deref(), Some("url"));
    let plain = list(node.get("/data")).await;
    assert_eq!(plain.elements("Key"), ["a b+c/&#x1;&lt;ü&gt;"]);
}

#[tokio::test]
async fn a_key_sees_only_what_it_may_read() {
    for v2 in [false, true] {
        for page in [0, 1, 2] {
            let everything = [
                ("TRAINER", "all"),
                ("TRAINER", "images"),
                ("TRAINER", "train"),
                ("TRAINER", "secret"),
            ];
            let whole = paged(&everything, page).await;
            assert_eq!(walk(&whole, "max-keys=2", v2).await.0, KEYS);

            let train = paged(&[("TRAINER", "train")], page).await;
            let found = walk(&train, "max-keys=2", v2).await;
            assert_eq!(found.0, ["images/train/1", "images/train/2", "images/train/3"]);
            assert_eq!(walk(&train, "delimiter=/", v2).await, (vec![], vec!["images/".to_owned()]));
            let below = walk(&train, "delimiter=/&prefix=images/", v2).await;
            assert_eq!(below, (vec![], vec!["images/train/".to_owned()]));
            assert_eq!(walk(&train, "prefix=secret/", v2).await.0, [""; 0]);

            let outer = paged(&[("TRAINER", "all"), ("TRAINER", "images")], page).await;
            let found = walk(&outer, "max-keys=2", v2).await;
            assert_eq!(found.0, ["images/a", "images/val/1", "images/z", "text/1"]);
            let rolled = walk(&outer, "delimiter=/&max-keys=1", v2).await;
            assert_eq!(rolled.1, ["images/", "text/"]);
            let rolled = walk(&outer, "delimiter=/&prefix=images/&max-keys=1", v2).await;
            assert_eq!(rolled.0, ["images/a", "images/z"]);
            assert_eq!(rolled.1, ["images/val/"]);

            let two = paged(&[("TRAINER", "train"), ("TRAINER", "secret")], page).await;
            let found = walk(&two, "max-keys=2", v2).await.0;
            assert_eq!(
                found,
                ["images/train/1", "images/train/2", "images/train/3", "secret/1", "secret/2"]
            );
            let rolled = walk(&two, "delimiter=/&max-keys=1", v2).await;
            assert_eq!(rolled.1, ["images/", "secret/"]);
        }
    }
}

#[tokio::test]
async fn a_large_unreadable_dataset_is_stepped_over() {
    let rules =
        rules(&[("all", "data", "", None), ("big", "data", "big/", None)], &[("TRAINER", "all")]);
    let mut setup = Setup { rules, ..Setup::default() };
    setup.double = super::double::Double::default();
    setup.double.put("data", "a", "1");
    setup.double.put("data", "z", "1");
    for i in 0..30_000 {
        setup.double.put("data", &format!("big/{i:06}"), "1");
    }
    let node = Node::with(setup).await;
    let reply = list(node.get("/data?list-type=2")).await;
    assert_eq!(reply.elements("Key"), ["a", "z"]);
    assert_eq!(reply.element("IsTruncated").as_deref(), Some("false"));
    assert_eq!(node.double.lists.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_alias_hides_its_prefix_from_listings() {
    let node = node(&[("TRAINER", "pics")]).await;
    let reply = list(node.get("/pictures?list-type=2&delimiter=/")).await;
    assert_eq!(reply.element("Name").as_deref(), Some("pictures"));
    assert_eq!(reply.elements("Key"), ["a", "z"]);
    assert_eq!(prefixes(&reply), ["train/", "val/"]);
    assert!(!reply.text().contains("images"), "{}", reply.text());
    let v1 = list(node.get("/pictures?prefix=train/&marker=train/1&delimiter=/&max-keys=1")).await;
    assert_eq!(v1.elements("Key"), ["train/2"]);
    assert_eq!(v1.element("NextMarker").as_deref(), Some("train/2"));
}

#[tokio::test]
async fn buckets_answer_to_those_who_may_read_anything_there() {
    let node = node(&[("TRAINER", "train"), ("TRAINER", "pics")]).await;
    let head = node.ask("HEAD", "/data").send().await;
    assert_eq!((head.status, head.header("x-amz-bucket-region")), (200, Some("cn-hangzhou")));
    let location = node.get("/data?location").send().await;
    assert_eq!(location.status, 200);
    assert!(location.text().ends_with(">cn-hangzhou</LocationConstraint>"));
    for path in ["/closed", "/closed?location", "/closed?list-type=2"] {
        node.get(path).send().await.expect(403, "AccessDenied", path);
    }
    for path in ["/unknown", "/unknown?location", "/unknown?list-type=2"] {
        node.get(path).send().await.expect(404, "NoSuchBucket", path);
    }
    let buckets = list(node.get("/")).await;
    assert_eq!(buckets.elements("Name"), ["data", "pictures"]);
    assert_eq!(buckets.elements("CreationDate").len(), 2);
    let page = list(node.get("/?max-buckets=1")).await;
    assert_eq!(page.elements("Name"), ["data"]);
    let next = page.element("ContinuationToken").unwrap();
    let page = list(node.get("/?max-buckets=1").query("continuation-token", &next)).await;
    assert_eq!(
        (page.elements("Name"), page.element("ContinuationToken")),
        (vec!["pictures".to_owned()], None)
    );
    let other = node.get("/").signed(|s| {
        s.access_key = "OTHER".into();
        s.secret = "other-secret".into();
    });
    assert_eq!(list(other).await.elements("Name"), [""; 0]);
}

#[tokio::test]
async fn under_a_wildcard_the_origin_says_which_buckets_there_are() {
    let node = Node::start().await;
    assert_eq!(list(node.get("/")).await.elements("Name"), ["data", "train-data"]);
    assert_eq!(node.ask("HEAD", "/train-data").send().await.status, 200);
    node.get("/missing?list-type=2").send().await;
    assert_eq!(node.ask("HEAD", "/missing").send().await.status, 404);
    let other = node.ask("HEAD", "/missing").signed(|s| {
        s.access_key = "OTHER".into();
        s.secret = "other-secret".into();
    });
    assert_eq!(other.send().await.status, 403);
}
