//! What a folder cannot do is refused, and nothing else is done instead.

use super::{ask, ask_bucket, get, put};
use crate::fixture::fixture;
use http::Method;

#[tokio::test]
async fn an_operation_that_is_not_known_is_not_taken_for_another() {
    let fixture = fixture();
    fixture.write("key", "old");
    let on_objects = [
        (Method::PUT, "acl"),
        (Method::PUT, "retention"),
        (Method::PUT, "legal-hold"),
        (Method::PUT, "append"),
        (Method::PUT, "renameObject"),
        (Method::PUT, "never-heard-of"),
        (Method::PUT, "versionId"),
        (Method::PUT, "uploadId"),
        (Method::PUT, "partNumber"),
        (Method::POST, "restore"),
        (Method::POST, "select"),
        (Method::POST, "never-heard-of"),
        (Method::DELETE, "never-heard-of"),
        (Method::GET, "torrent"),
        (Method::GET, "legal-hold"),
        (Method::GET, "x-oss-process"),
        (Method::OPTIONS, "x-id"),
        (Method::PATCH, "x-id"),
    ];
    for (method, name) in on_objects {
        let request = ask(method.clone(), "key").query(name, "").whole(b"new");
        let told = fixture.outcome(request).await;
        assert_eq!(told, "501 NotImplemented", "{method} {name}");
    }
    let on_buckets = [
        (Method::PUT, "versioning"),
        (Method::PUT, "policy"),
        (Method::PUT, "lifecycle"),
        (Method::PUT, "never-heard-of"),
        (Method::DELETE, "policy"),
        (Method::DELETE, "never-heard-of"),
        (Method::GET, "inventory"),
        (Method::GET, "never-heard-of"),
        (Method::POST, "x-id"),
    ];
    for (method, name) in on_buckets {
        let told = fixture.outcome(ask_bucket(method.clone()).query(name, "")).await;
        assert_eq!(told, "501 NotImplemented", "{method} {name}");
    }
    assert_eq!(fixture.ask(get("key")).await.text(), "old");
    assert_eq!(fixture.keys().await, ["key"]);
    // HEAD has no body to say it in.
    let head = fixture.ask(ask(Method::HEAD, "key").query("attributes", "")).await;
    assert_eq!((head.status, head.body.len()), (501, 0));
}

#[tokio::test]
async fn a_header_that_asks_for_more_than_a_folder_can_is_refused() {
    let fixture = fixture();
    for (name, value, expected) in [
        ("x-amz-server-side-encryption", "aws:kms", "501 NotImplemented"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256", "501 NotImplemented"),
        ("x-amz-object-lock-mode", "GOVERNANCE", "501 NotImplemented"),
        ("x-amz-website-redirect-location", "/x", "501 NotImplemented"),
        ("x-amz-write-offset-bytes", "0", "501 NotImplemented"),
        ("x-amz-expected-bucket-owner", "111122223333", "501 NotImplemented"),
        ("x-amz-grant-read", "id=x", "501 NotImplemented"),
        ("x-amz-never-heard-of", "x", "501 NotImplemented"),
        ("x-amz-acl", "public-read", "400 AccessControlListNotSupported"),
        ("x-amz-storage-class", "GLACIER", "400 InvalidStorageClass"),
    ] {
        let told = fixture.outcome(put("key", b"x").header(name, value)).await;
        assert_eq!(told, expected, "{name}: {value}");
    }
    let large = put("key", b"x").header("x-amz-meta-a", "x".repeat(2048));
    assert_eq!(fixture.outcome(large).await, "400 MetadataTooLarge");
    let most = put("key", b"x").header("x-amz-meta-a", "x".repeat(2047));
    assert_eq!(fixture.outcome(most).await, "200");
}

#[tokio::test]
async fn an_error_names_what_was_asked_for_in_good_xml() {
    let fixture = fixture();
    let told = fixture.ask(get("a<b>&\"c\u{1}")).await;
    assert_eq!(told.outcome(), "404 NoSuchKey");
    assert_eq!(told.first("Resource"), "/bucket/a&lt;b&gt;&amp;&quot;c&#x1;");
    let (one, two) = (told.first("RequestId"), fixture.ask(get("x")).await.first("RequestId"));
    assert!(one.len() == 16 && one != two);
}
