//! GetObject and HeadObject against the double.

use super::double::MODIFIED;
use super::support::{Ask, Node, Reply, Setup, rules};

async fn check(ask: Ask, status: u16, body: &str) -> Reply {
    let reply = ask.send().await;
    assert_eq!((reply.status, &*reply.text()), (status, body), "{reply:?}");
    reply
}

#[tokio::test]
async fn an_object_comes_with_the_headers_of_its_origin() {
    let node = Node::start().await;
    let reply = check(node.get("/data/k"), 200, "0123456789").await;
    for (name, value) in [
        ("etag", "\"tag\""),
        ("last-modified", MODIFIED),
        ("content-type", "image/jpeg"),
        ("content-length", "10"),
        ("accept-ranges", "bytes"),
        ("x-amz-meta-colour", "blue"),
        ("x-oss-hash-crc64ecma", "1234"),
        ("x-larder-cache", "memory"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    assert_eq!(reply.header("x-amz-checksum-crc32"), None, "told only when asked for");
    assert!(reply.header("x-amz-id-2").is_some());
    let head = node.ask("HEAD", "/data/k").send().await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("10"));
    assert_eq!(head.header("x-larder-cache"), Some("disk"));
    check(node.get("/data/empty"), 200, "").await;
    check(node.get("/data/streamed"), 200, "0123456789").await;
}

#[tokio::test]
async fn checksums_are_told_when_asked_for_and_of_the_whole_object_only() {
    let node = Node::start().await;
    let asked = || node.get("/data/k").header("x-amz-checksum-mode", "ENABLED");
    let whole = check(asked(), 200, "0123456789").await;
    assert_eq!(whole.header("x-amz-checksum-crc32"), Some("AAAAAA=="));
    assert_eq!(whole.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    let part = check(asked().header("range", "bytes=0-1"), 206, "01").await;
    assert_eq!(part.header("x-amz-checksum-crc32"), None);
}

#[tokio::test]
async fn ranges_are_served_and_those_that_s3_ignores_are_ignored() {
    let node = Node::start().await;
    for (range, body, content_range) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-99", "56789", "bytes 5-9/10"),
    ] {
        let reply = check(node.get("/data/k").header("range", range), 206, body).await;
        assert_eq!(reply.header("content-range"), Some(content_range));
    }
    for range in ["bytes=4-2", "bytes=0-1,3-4", "bytes=x", "items=0-1", ""] {
        check(node.get("/data/k").header("range", range), 200, "0123456789").await;
    }
    let streamed = node.get("/data/streamed").header("range", "bytes=2-5");
    check(streamed, 206, "2345").await;
    let reply = node.get("/data/k").header("range", "bytes=10-").send().await;
    reply.expect(416, "InvalidRange", "past the end");
    assert_eq!(reply.header("content-range"), Some("bytes */10"));
    assert_eq!(reply.element("ActualObjectSize").as_deref(), Some("10"));
    assert_eq!(reply.element("RangeRequested").as_deref(), Some("bytes=10-"));
    let head = node.ask("HEAD", "/data/k").header("range", "bytes=2-4").send().await;
    assert_eq!((head.status, head.header("content-length")), (206, Some("3")));
}

#[tokio::test]
async fn conditions_are_held_against_the_object() {
    let node = Node::start().await;
    let get = |name: &str, value: &str| node.get("/data/k").header(name, value);
    check(get("if-match", "\"tag\""), 200, "0123456789").await;
    let failed = get("if-match", "\"other\"").send().await;
    failed.expect(412, "PreconditionFailed", "if-match");
    assert_eq!(failed.element("Condition").as_deref(), Some("If-Match"));
    let before = "Thu, 01 Jan 1970 00:00:01 GMT";
    let failed = get("if-unmodified-since", before).send().await;
    failed.expect(412, "PreconditionFailed", "if-unmodified-since");
    assert_eq!(failed.element("Condition").as_deref(), Some("If-Unmodified-Since"));
    for (name, value) in [("if-none-match", "tag"), ("if-modified-since", MODIFIED)] {
        let reply = check(get(name, value), 304, "").await;
        assert_eq!(reply.header("etag"), Some("\"tag\""));
        assert_eq!(reply.header("last-modified"), Some(MODIFIED));
        assert_eq!(reply.header("cache-control"), Some("max-age=60"));
        assert_eq!(reply.header("x-amz-meta-colour"), None);
    }
    check(get("if-modified-since", "yesterday"), 200, "0123456789").await;
    let resume = |value: &str| get("if-range", value).header("range", "bytes=8-");
    check(resume("\"tag\""), 206, "89").await;
    check(resume("\"older\""), 200, "0123456789").await;
    check(resume("W/\"tag\""), 200, "0123456789").await;
    check(resume(MODIFIED), 206, "89").await;
}

#[tokio::test]
async fn parts_versions_and_overrides_are_parsed_as_s3_does() {
    let node = Node::start().await;
    // A part is told by the origin alone, nonsense included.
    for part in ["3", "0", "x"] {
        let reply = node.get("/data/k").query("partNumber", part).send().await;
        assert_eq!((reply.status, reply.header("x-larder-cache")), (200, Some("origin")));
        assert_eq!(node.double.one().query, [("partNumber".to_owned(), part.to_owned())]);
    }
    node.get("/data/k?versionId=").send().await.expect(400, "InvalidArgument", "version");
    let null = node.get("/data/k?versionId=null").send().await;
    assert_eq!((null.status, null.header("x-larder-cache")), (200, Some("origin")));
    check(node.get("/data/k?versionId=1"), 200, "0123456789").await;
    let reply = node
        .get("/data/k")
        .query("response-content-type", "text/plain")
        .query("response-content-disposition", "attachment; filename=\"a b\"")
        .send()
        .await;
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("content-disposition"), Some("attachment; filename=\"a b\""));
    let split = node.get("/data/k").query("response-content-type", "a\r\nx-evil: 1").send().await;
    split.expect(400, "InvalidArgument", "header splitting");
}

#[tokio::test]
async fn keys_are_decoded_once_and_kept_as_they_are() {
    let node = Node::start().await;
    check(node.get("/data/a%20b%2Bc/%C3%BC//.."), 200, "odd").await;
    // A plus in a path is a plus; clients sign it escaped.
    let reply = node.get("/data/a%20b%20c/%C3%BC//..").send().await;
    assert_eq!(reply.status, 404);
    assert_eq!(node.get("/data/a%2520b").send().await.status, 404);
}

#[tokio::test]
async fn a_bucket_may_be_in_the_host() {
    let node = Node::start().await;
    check(node.get("/k").host("data.s3.local"), 200, "0123456789").await;
    // Buckets are case-sensitive, domains are not.
    assert_eq!(node.get("/k").host("DATA.S3.local:9000").send().await.status, 404);
    check(node.get("/data/k").host("s3.local"), 200, "0123456789").await;
    check(node.get("/data/k").host("elsewhere.example"), 200, "0123456789").await;
}

#[tokio::test]
async fn errors_of_the_origin_and_of_the_data_path_reach_the_client() {
    let node = Node::start().await;
    let gone = node.get("/data/gone").send().await;
    assert_eq!(gone.text(), "<Error><Code>NoSuchKey</Code><Key>gone</Key></Error>");
    assert_eq!((gone.status, gone.header("x-oss-ec")), (404, Some("0026-00000001")));
    node.get("/data/missing").send().await.expect(404, "NoSuchKey", "no body");
    let head = node.ask("HEAD", "/data/missing").send().await;
    assert_eq!((head.status, head.body.len()), (404, 0));
    let busy = node.get("/data/busy").send().await;
    busy.expect(503, "SlowDown", "busy");
    assert_eq!(busy.header("retry-after"), Some("3"));
    for key in ["down", "changing"] {
        let reply = node.get(&format!("/data/{key}")).send().await;
        reply.expect(503, "ServiceUnavailable", key);
        assert!(reply.header("retry-after").is_some());
    }
}

#[tokio::test]
async fn an_error_in_mid_stream_closes_the_connection_short() {
    let node = Node::start().await;
    let reply = node.get("/data/cut").send().await;
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("10")));
    assert_eq!(reply.text(), "01234");
}

#[tokio::test]
async fn the_job_is_the_header_or_else_the_access_key() {
    let node = Node::start().await;
    check(node.get("/data/k"), 200, "0123456789").await;
    check(node.get("/data/k").header("x-larder-job", "epoch-7"), 200, "0123456789").await;
    let jobs: Vec<String> =
        node.double.read.lock().unwrap().iter().map(|(_, job)| job.clone()).collect();
    assert_eq!(jobs, ["TRAINER", "epoch-7"]);
}

#[tokio::test]
async fn grants_decide_what_is_read() {
    let rules = rules(
        &[
            ("in", "data", "in/", None),
            ("out", "data", "out/", None),
            ("shut", "closed", "", None),
            ("pics", "data", "deep/", Some("pictures")),
        ],
        &[("TRAINER", "in"), ("TRAINER", "pics")],
    );
    let mut setup = Setup { rules, ..Setup::default() };
    setup.double.put("data", "in/k", &b"in"[..]);
    setup.double.put("data", "out/k", &b"out"[..]);
    setup.double.put("data", "deep/k", &b"deep"[..]);
    let node = Node::with(setup).await;
    check(node.get("/data/in/k"), 200, "in").await;
    check(node.get("/pictures/k"), 200, "deep").await;
    for path in ["/data/out/k", "/data/neither", "/closed/k", "/data/deep/k"] {
        node.get(path).send().await.expect(403, "AccessDenied", path);
    }
    let unknown = node.get("/unknown/k").send().await;
    unknown.expect(404, "NoSuchBucket", "unknown");
    assert_eq!(unknown.element("BucketName").as_deref(), Some("unknown"));
    let hidden = node.get("/pictures/gone").send().await;
    hidden.expect(404, "NoSuchKey", "alias");
    let requests = prometheus_text(&node);
    let served = "larder_requests_total{dataset=\"in\",operation=\"GetObject\",status=\"200\"} 1";
    assert!(requests.contains(served), "{requests}");
    assert!(requests.contains("larder_request_duration_seconds_count{operation=\"GetObject\"}"));
}

pub(crate) fn prometheus_text(node: &Node) -> String {
    prometheus::TextEncoder::new().encode_to_string(&node.registry.gather()).unwrap()
}
