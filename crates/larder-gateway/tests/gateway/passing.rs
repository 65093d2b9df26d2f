//! What goes around the cache: which grant it needs, what of it reaches the origin, and what of the
//! answer comes back.

use super::double::Canned;
use super::support::{Ask, KEY, Node, Setup, access_rules};
use base64::Engine as _;
use larder_model::Access::{Read, ReadWrite};

/// `in/` may be written, `look/` only be read, `out/` neither; `pictures` is an alias.
async fn mixed() -> Node {
    let rules = access_rules(
        &[
            ("in", "data", "in/", None),
            ("look", "data", "look/", None),
            ("out", "data", "out/", None),
            ("whole", "whole", "", None),
            ("below", "whole", "below/", None),
            ("pics", "train-data", "deep in/", Some("pictures")),
        ],
        &[
            (KEY, "in", ReadWrite),
            (KEY, "look", Read),
            (KEY, "whole", ReadWrite),
            (KEY, "pics", ReadWrite),
        ],
    );
    Node::with(Setup { rules, ..Setup::default() }).await
}

async fn check(ask: Ask, status: u16, code: &str, what: &str) {
    let reply = ask.send().await;
    let found = (reply.status, reply.element("Code").unwrap_or_default());
    assert_eq!(found, (status, code.to_owned()), "{what}: {}", reply.text());
}

fn md5(body: &str) -> String {
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
}

#[tokio::test]
async fn a_write_needs_a_grant_to_write_the_dataset_of_the_key() {
    let node = mixed().await;
    for (method, query) in [
        ("PUT", ""),
        ("DELETE", ""),
        ("PUT", "?tagging"),
        ("POST", "?uploads"),
        ("PUT", "?partNumber=1&uploadId=u"),
        ("POST", "?uploadId=u"),
        ("DELETE", "?uploadId=u"),
        ("POST", "?restore"),
    ] {
        let ask = |path: &str| node.ask(method, &format!("{path}{query}")).body("x");
        check(ask("/data/in/k"), 200, "", query).await;
        let arrived = node.double.one();
        assert_eq!((&*arrived.method, &*arrived.path), (method, "/data/in/k"));
        for path in ["/data/look/k", "/data/out/k", "/data/none", "/whole/below/k"] {
            check(ask(path), 403, "AccessDenied", path).await;
        }
        check(ask("/unknown/k"), 404, "NoSuchBucket", query).await;
    }
    for query in ["?acl", "?tagging", "?attributes", "?uploadId=u"] {
        check(node.get(&format!("/data/look/k{query}")), 200, "", query).await;
        check(node.get(&format!("/data/out/k{query}")), 403, "AccessDenied", query).await;
    }
    assert_eq!(node.double.take().len(), 4);
}

#[tokio::test]
async fn requests_on_a_bucket_need_all_of_it() {
    let node = mixed().await;
    for (method, query) in [
        ("GET", "?acl"),
        ("GET", "?policy"),
        ("GET", "?versions"),
        ("PUT", "?lifecycle"),
        ("DELETE", ""),
        ("PUT", ""),
    ] {
        let ask = |bucket: &str| node.ask(method, &format!("/{bucket}{query}"));
        check(ask("whole"), 403, "AccessDenied", "a dataset below is not granted").await;
        check(ask("data"), 403, "AccessDenied", "no dataset is the whole").await;
    }
    assert!(node.double.take().is_empty());
    check(node.get("/data?versions&prefix=look/a"), 200, "", "within one").await;
    check(node.get("/data?uploads&prefix=in/"), 200, "", "within one").await;
    check(node.get("/data?versions&prefix=out/"), 403, "AccessDenied", "not granted").await;
    check(node.get("/data?versions&prefix=l"), 403, "AccessDenied", "above").await;
    check(node.get("/whole?versions&prefix=b"), 403, "AccessDenied", "one below is not granted")
        .await;
    check(node.get("/whole?versions&prefix=c"), 200, "", "beside it").await;
    let all = Node::writable().await;
    for (method, path) in [("PUT", "/fresh"), ("DELETE", "/fresh"), ("PUT", "/fresh?logging")] {
        check(all.ask(method, path), 200, "", path).await;
        assert_eq!(format!("{:?}", all.double.one().changes), "Bucket");
    }
    // A bucket of its own is not every bucket, to which a log might be sent.
    check(all.ask("PUT", "/data?logging").body("x"), 403, "AccessDenied", "logging").await;
    check(all.ask("PUT", "/data?policy").body("x"), 200, "", "policy").await;
}

#[tokio::test]
async fn what_no_row_tells_is_not_implemented_and_says_so() {
    let node = Node::writable().await;
    for (method, path, names) in [
        ("PUT", "/data/k?newthing", "newthing"),
        ("GET", "/data/k?torrent", "GetObjectTorrent"),
        ("GET", "/data?session", "CreateSession"),
        ("PUT", "/data/k?renameObject", "RenameObject"),
        ("POST", "/data/k?x-oss-process=a", "ProcessObjectAndSave"),
        ("POST", "/data/k?tagging", "tagging"),
    ] {
        let ask = node.ask(method, path);
        let ask = if method == "GET" { ask } else { ask.body("x") };
        let reply = ask.send().await;
        reply.expect(501, "NotImplemented", path);
        assert!(reply.element("Message").unwrap().contains(names), "{}", reply.text());
    }
    for name in ["x-amz-rename-source", "x-oss-copy-source", "x-bce-copy-source"] {
        let reply = node.ask("PUT", "/data/k").header(name, "/data/secret").body("x").send().await;
        reply.expect(501, "NotImplemented", name);
    }
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn a_header_of_the_origins_own_must_be_signed() {
    let node = Node::writable().await;
    for name in ["x-oss-object-acl", "x-bce-acl", "x-amz-acl"] {
        let ask = node.ask("PUT", "/data/k").form(super::support::Form::Presigned).wire("x");
        let reply = ask.late_header(name, "public-read").send().await;
        reply.expect(403, "AccessDenied", name);
    }
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn a_presigned_url_may_carry_headers_as_parameters() {
    let node = Node::writable().await;
    let ask = node
        .ask("PUT", "/data/k")
        .form(super::support::Form::Presigned)
        .query("x-amz-storage-class", "STANDARD_IA")
        .query("X-Amz-Meta-Colour", "blue")
        .query("x-id", "PutObject");
    check(ask.wire("body"), 200, "", "parameters").await;
    let arrived = node.double.one();
    assert!(arrived.query.is_empty(), "{:?}", arrived.query);
    assert_eq!(arrived.header("x-amz-storage-class"), Some("STANDARD_IA"));
    assert_eq!(arrived.header("x-amz-meta-colour"), Some("blue"));
    let copy = node
        .ask("PUT", "/data/k")
        .form(super::support::Form::Presigned)
        .query("x-amz-copy-source", "/data/in%2Fk");
    check(copy.wire(""), 200, "", "a copy").await;
    assert_eq!(node.double.one().source.as_deref(), Some("origin:data/in/k"));
    let wrong = node
        .ask("PUT", "/data/k")
        .form(super::support::Form::Presigned)
        .query("x-amz-checksum-crc32", "AAAAAA==");
    check(wrong.wire("body"), 400, "BadDigest", "a checksum of something else").await;
}

#[tokio::test]
async fn a_copy_reads_with_a_grant_of_its_own() {
    let node = mixed().await;
    let copy = |source: &str, to: &str| node.ask("PUT", to).header("x-amz-copy-source", source);
    for (source, header, name) in [
        ("/data/look/a%20b", "data/look/a%20b", "origin:data/look/a b"),
        ("data/in/k?versionId=v%2F1", "data/in/k?versionId=v/1", "origin:data/in/k"),
        ("pictures/k", "train-data/deep%20in/k", "origin:train-data/deep in/k"),
    ] {
        let ask = copy(source, "/data/in/to").header("x-amz-metadata-directive", "COPY");
        check(ask, 200, "", source).await;
        let arrived = node.double.one();
        assert_eq!(arrived.header("x-amz-copy-source"), Some(header));
        assert_eq!(arrived.header("x-amz-metadata-directive"), Some("COPY"));
        assert!(arrived.source.unwrap().starts_with(name));
        assert_eq!(format!("{:?}", arrived.changes), "Objects([\"in/to\"])");
    }
    check(copy("data/in/k", "/data/in/to?partNumber=1&uploadId=u"), 200, "", "part").await;
    let arrived = node.double.one();
    assert_eq!((arrived.query.len(), format!("{:?}", arrived.changes)), (2, "Nothing".to_owned()));
    check(copy("data/out/k", "/data/in/to"), 403, "AccessDenied", "not granted").await;
    check(copy("data/in/../out/k", "/data/in/to"), 200, "", "dots are no way out").await;
    assert_eq!(node.double.one().header("x-amz-copy-source"), Some("data/in/../out/k"));
    check(copy("train-data/deep in/k", "/data/in/to"), 404, "NoSuchBucket", "hidden").await;
    check(copy("nonsense", "/data/in/to"), 400, "InvalidArgument", "nonsense").await;
    check(copy("arn:aws:s3:::a", "/data/in/to"), 501, "NotImplemented", "ARN").await;
    check(copy("data/look/a", "/data/look/to"), 403, "AccessDenied", "target").await;
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn answers_come_back_as_the_origin_gave_them() {
    let node = Node::writable().await;
    node.double.answer(Canned::xml(409, "<Error><Code>BucketNotEmpty</Code></Error>"));
    let reply = node.ask("DELETE", "/data").send().await;
    assert_eq!((reply.status, &*reply.text()), (409, "<Error><Code>BucketNotEmpty</Code></Error>"));
    assert_eq!(reply.header("x-amz-request-id").map(str::len), Some(16), "ours");
    let headers = vec![("x-amz-version-id", "v1".to_owned()), ("x-oss-hash", "1".to_owned())];
    node.double.answer(Canned { status: 204, headers, ..Canned::default() });
    let reply = node.ask("DELETE", "/data/k?versionId=v1").send().await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    assert_eq!(reply.header("x-amz-version-id"), Some("v1"));
    assert_eq!(reply.header("x-oss-hash"), Some("1"));
    let arrived = node.double.take().pop().unwrap();
    assert_eq!(arrived.query, [("versionId".to_owned(), "v1".to_owned())]);
    // Without a length, as the completion of an upload answers while it is at work.
    let headers = vec![("content-type", "application/xml".to_owned())];
    node.double.answer(Canned { headers, body: "  <R/>".to_owned(), ..Canned::default() });
    let reply = node.ask("POST", "/data/k?uploadId=u").body("<C/>").send().await;
    assert!(reply.text().contains("  <R/>"), "{}", reply.text());
}

#[tokio::test]
async fn what_the_cache_does_not_do_is_asked_of_the_origin() {
    let node = Node::writable().await;
    let headers = vec![("content-length", "3".to_owned()), ("etag", "\"t\"".to_owned())];
    let canned = Canned { headers, body: "abc".to_owned(), ..Canned::default() };
    let sse = "x-amz-server-side-encryption-customer-key";
    node.double.answer(canned.clone());
    let ask = node.get("/data/k?versionId=v&response-expires=0").header(sse, "secret");
    let reply = ask.header("range", "bytes=0-2").send().await;
    assert_eq!((reply.status, &*reply.text()), (200, "abc"));
    assert_eq!(reply.header("x-larder-cache"), Some("origin"));
    let arrived = node.double.one();
    assert_eq!((arrived.header(sse), arrived.header("range")), (Some("secret"), Some("bytes=0-2")));
    assert_eq!(arrived.query.len(), 2);
    node.double.answer(canned.clone());
    let reply = node.ask("HEAD", "/data/k").header("x-amz-expected-bucket-owner", "1").send().await;
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("3")));
    assert!(reply.body.is_empty());
    node.double.answer(Canned { status: 304, ..canned });
    let ask = node.get("/data/k").header(sse, "secret").header("if-none-match", "\"t\"");
    let reply = ask.send().await;
    assert_eq!((reply.status, reply.body.len(), reply.header("etag")), (304, 0, Some("\"t\"")));
    assert!(node.double.read.lock().unwrap().is_empty(), "nothing went through the cache");
}

#[tokio::test]
async fn documents_are_bounded_verified_and_passed_on_as_they_came() {
    let node = Node::writable().await;
    let body = "<CompleteMultipartUpload>  <Part/></CompleteMultipartUpload>";
    // The checksum is of the object that comes to be.
    let sum = "x-amz-checksum-crc32";
    let ask = node.ask("POST", "/data/k?uploadId=u").header(sum, "AAAAAA==-2").body(body);
    check(ask, 200, "", "completion").await;
    let arrived = node.double.one();
    assert_eq!((arrived.text(), arrived.header(sum)), (body.to_owned(), Some("AAAAAA==-2")));
    let ask = node.ask("PUT", "/data/k?tagging").header("content-md5", &md5("else")).body("<T/>");
    check(ask, 400, "BadDigest", "tagging").await;
    let ask = node.ask("PUT", "/data/k?tagging").header("content-md5", &md5("<T/>")).body("<T/>");
    check(ask, 200, "", "tagging").await;
    assert_eq!(node.double.one().header("content-md5"), Some(&*md5("<T/>")));
    let big = "x".repeat((2 << 20) + 1);
    check(node.ask("PUT", "/data/k?tagging").body(big), 400, "MaxMessageLengthExceeded", "big")
        .await;
    let restore = "<RestoreRequest><OutputLocation/></RestoreRequest>";
    let ask = node.ask("POST", "/data/k?restore").body(restore);
    check(ask, 501, "NotImplemented", "restored to another bucket").await;
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn an_alias_shows_nothing_that_it_hides() {
    let node = mixed().await;
    let document = |root: &str| {
        format!(
            "<{root}><Bucket>train-data</Bucket><Key>deep in/a b</Key><UploadId>u</UploadId>\
             <Location>http://train-data/deep%20in/a%20b</Location></{root}>"
        )
    };
    for (method, query) in [("POST", "?uploads"), ("POST", "?uploadId=u"), ("GET", "?uploadId=u")] {
        node.double.answer(Canned::xml(200, &document("Result")));
        let path = format!("/pictures/a%20b{query}");
        let ask = node.ask(method, &path);
        let ask = if method == "GET" { ask } else { ask.body("<X/>") };
        let reply = ask.send().await;
        assert_eq!(reply.status, 200, "{query}");
        assert_eq!(reply.element("Bucket").as_deref(), Some("pictures"));
        assert_eq!(reply.element("Key").as_deref(), Some("a b"));
        let text = reply.text();
        assert!(!text.contains("train-data") && !text.contains("deep"), "{text}");
        assert_eq!(reply.header("location"), None);
        assert_eq!(node.double.one().path, "/train-data/deep in/a b");
    }
    let page = "<ListVersionsResult><Name>train-data</Name><Prefix>deep in/x</Prefix>\
        <KeyMarker>deep in/m</KeyMarker><Version><Key>deep in/xa</Key></Version>\
        <CommonPrefixes><Prefix>deep in/xb/</Prefix></CommonPrefixes></ListVersionsResult>";
    node.double.answer(Canned::xml(200, page));
    let reply = node.get("/pictures?versions&prefix=x&key-marker=m").send().await;
    assert_eq!(reply.elements("Prefix"), ["x", "xb/"]);
    assert_eq!(
        (reply.element("Key").unwrap(), reply.element("Name").unwrap()),
        ("xa".to_owned(), "pictures".to_owned())
    );
    let query = node.double.one().query;
    assert!(query.contains(&("prefix".to_owned(), "deep in/x".to_owned())), "{query:?}");
    assert!(query.contains(&("key-marker".to_owned(), "deep in/m".to_owned())), "{query:?}");
    node.double.answer(Canned::xml(200, "<ListMultipartUploadsResult/>"));
    assert_eq!(node.get("/pictures?uploads").send().await.status, 200);
    assert_eq!(node.double.one().query.last().unwrap().1, "deep in/");
    let error = "<Error><Code>NoSuchUpload</Code><Message>None at train-data.</Message>\
        <Key>deep in/k</Key><Resource>/train-data/deep in/k</Resource></Error>";
    node.double.answer(Canned::xml(404, error));
    let reply = node.ask("DELETE", "/pictures/k?uploadId=u").send().await;
    reply.expect(404, "NoSuchUpload", "error");
    assert!(
        !reply.text().contains("train-data") && !reply.text().contains("deep"),
        "{}",
        reply.text()
    );
    node.double.take();
    for (method, query) in [("GET", "?policy"), ("PUT", "?policy"), ("GET", "?acl"), ("DELETE", "")]
    {
        let ask = node.ask(method, &format!("/pictures{query}"));
        check(ask, 403, "AccessDenied", query).await;
    }
    assert!(node.double.take().is_empty());
}

fn delete(node: &Node, bucket: &str, body: &str) -> Ask {
    let ask = node.ask("POST", &format!("/{bucket}?delete"));
    ask.header("content-md5", &md5(body)).body(body)
}

fn keys(keys: &[&str]) -> String {
    let entries: String =
        keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    format!("<Delete xmlns=\"x\">{entries}</Delete>")
}

#[tokio::test]
async fn deletions_that_are_all_allowed_go_on_as_they_came() {
    let node = mixed().await;
    let body = keys(&["in/a", "in/b&amp;c"]);
    node.double.answer(Canned::xml(
        200,
        "<DeleteResult><Deleted><Key>in/a</Key></Deleted></DeleteResult>",
    ));
    let reply = delete(&node, "data", &body).send().await;
    assert_eq!((reply.status, reply.elements("Key")), (200, vec!["in/a".to_owned()]));
    let arrived = node.double.one();
    assert_eq!((arrived.text(), arrived.path), (body.clone(), "/data/".to_owned()));
    assert_eq!(arrived.headers.get("content-md5").unwrap(), &md5(&body));
    assert_eq!(format!("{:?}", arrived.changes), "Objects([\"in/a\", \"in/b&c\"])");
}

#[tokio::test]
async fn keys_that_may_not_be_deleted_become_errors_of_the_result() {
    let node = mixed().await;
    node.double.answer(Canned::xml(
        200,
        "<DeleteResult><Deleted><Key>in/a</Key><DeleteMarker>true</DeleteMarker></Deleted>\
         <Error><Key>in/b</Key><Code>InternalError</Code></Error></DeleteResult>",
    ));
    let body = keys(&["in/a", "out/x", "in/b", "look/y"]);
    let reply = delete(&node, "data", &body).send().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.elements("Key"), ["in/a", "in/b", "out/x", "look/y"]);
    assert_eq!(reply.elements("Code"), ["InternalError", "AccessDenied", "AccessDenied"]);
    assert_eq!(reply.element("DeleteMarker").as_deref(), Some("true"));
    let arrived = node.double.one();
    assert!(!arrived.text().contains("out/x") && arrived.text().contains("in/b"));
    assert_eq!(arrived.header("content-md5"), Some(&*md5(&arrived.text())));
    let reply = delete(&node, "data", &keys(&["out/x"])).send().await;
    assert_eq!((reply.status, reply.elements("Code")), (200, vec!["AccessDenied".to_owned()]));
    assert!(node.double.take().is_empty());
    // Behind an alias, names are mapped both ways.
    let answer = "<DeleteResult><Deleted><Key>deep in/k</Key></Deleted></DeleteResult>";
    node.double.answer(Canned::xml(200, answer));
    let reply = delete(&node, "pictures", &keys(&["k"])).send().await;
    assert_eq!(reply.elements("Key"), ["k"]);
    assert!(node.double.one().text().contains("<Key>deep in/k</Key>"));
    node.double.answer(Canned::xml(500, "<Error/>"));
    let reply = delete(&node, "pictures", &keys(&["k"])).send().await;
    assert_eq!((reply.status, reply.elements("Code")), (200, vec!["InternalError".to_owned()]));
}

#[tokio::test]
async fn malformed_deletions_are_refused() {
    let node = Node::writable().await;
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for body in [
        "",
        "nonsense",
        "<Delete>",
        "<Delete/>",
        "<Delete><Object/></Delete>",
        "<Delete><Object><Key></Key></Object></Delete>",
        "<Remove><Object><Key>a</Key></Object></Remove>",
        "<!DOCTYPE d [<!ENTITY a \"b\">]><Delete><Object><Key>&a;</Key></Object></Delete>",
        &keys(&many),
    ] {
        check(delete(&node, "data", body), 400, "MalformedXML", &body[..body.len().min(60)]).await;
    }
    let long = keys(&["a", &"x".repeat(1025)]);
    check(delete(&node, "data", &long), 400, "KeyTooLongError", "long").await;
    let body = keys(&["a"]);
    let without = node.ask("POST", "/data?delete").body(&*body);
    check(without, 400, "InvalidRequest", "no digest").await;
    let wrong = node.ask("POST", "/data?delete").header("content-md5", &md5("x")).body(&*body);
    check(wrong, 400, "BadDigest", "wrong digest").await;
    assert!(node.double.take().is_empty());
}
