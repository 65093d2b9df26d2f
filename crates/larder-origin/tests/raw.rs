//! Requests that are passed on, against a scripted double: what arrives there byte for byte, which
//! attempts are made, and what comes back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, also in its helpers")]

#[path = "raw/double.rs"]
mod double;
#[path = "raw/survey.rs"]
mod survey;
#[path = "raw/tls.rs"]
mod tls;
#[path = "raw/trouble.rs"]
mod trouble;

use bytes::Bytes;
use double::{Double, KEY_ID, Seen, TOKEN, answer, config, error, limits};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use larder_model::{
    BodyBroken, BucketName, ObjectKey, Origin, OriginError, RawAnswer, RawBody, RawRequest, Trailer,
};
use larder_origin::{Addressing, Dialect, OriginLimits};
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

fn request(method: Method, key: Option<&str>, body: RawBody) -> RawRequest {
    RawRequest {
        method,
        bucket: Some(BucketName::new("bucket").unwrap()),
        key: key.map(|key| ObjectKey::new(key).unwrap()),
        query: Vec::new(),
        headers: HeaderMap::new(),
        body,
    }
}

fn put(body: RawBody) -> RawRequest {
    request(Method::PUT, Some("key"), body)
}

fn with(mut request: RawRequest, query: &[(&str, &str)], headers: &[(&str, &str)]) -> RawRequest {
    request.query = query.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        request.headers.append(name, HeaderValue::try_from(*value).unwrap());
    }
    request
}

type Pieces = BoxStream<'static, Result<Bytes, BodyBroken>>;

fn pieces(items: Vec<Result<&'static str, BodyBroken>>) -> Pieces {
    stream::iter(items.into_iter().map(|item| item.map(Bytes::from))).boxed()
}

fn streamed(text: &'static str) -> RawBody {
    let len = text.len() as u64;
    RawBody::Stream { len, sha256: None, trailer: None, bytes: pieces(vec![Ok(text)]) }
}

fn trailed(text: &'static str, name: &'static str, value: &'static str) -> RawBody {
    let slot = Arc::new(OnceLock::new());
    let trailer = Trailer { name: HeaderName::from_static(name), value: Arc::clone(&slot) };
    // Filled only when the bytes have gone by, as by a stream that verifies them.
    let end = stream::once(async move {
        slot.set(HeaderValue::from_static(value)).unwrap();
        Ok(Bytes::new())
    });
    let bytes = pieces(vec![Ok(text)]).chain(end).boxed();
    RawBody::Stream { len: text.len() as u64, sha256: None, trailer: Some(trailer), bytes }
}

async fn send(double: &Double, request: RawRequest) -> Result<(RawAnswer, Vec<u8>), OriginError> {
    let mut answer = double.origin.raw(request).await?;
    let mut body = Vec::new();
    while let Some(piece) = answer.body.next().await {
        body.extend_from_slice(&piece?);
    }
    Ok((answer, body))
}

/// Sends one request to a double that answers 200; what it saw, its signature checked.
async fn seen_of(dialect: Dialect, request: RawRequest) -> Seen {
    let double = Double::with(dialect, limits(), vec![answer(200, "", "")]).await;
    assert_eq!(send(&double, request).await.unwrap().0.status, 200);
    let seen = double.seen().remove(0);
    seen.verify("cn-test-1");
    seen
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[tokio::test]
async fn keys_arrive_as_they_are_and_are_signed_so() {
    let long = "ж".repeat(512);
    for (key, path) in [
        ("a//b", "a//b".to_owned()),
        ("/lead", "/lead".to_owned()),
        ("..", "..".to_owned()),
        ("a/../b/.", "a/../b/.".to_owned()),
        ("a b+c%41", "a%20b%2Bc%2541".to_owned()),
        ("ключ?#&=", "%D0%BA%D0%BB%D1%8E%D1%87%3F%23%26%3D".to_owned()),
        (&long, "%D0%B6".repeat(512)),
    ] {
        let seen = seen_of(Dialect::S3, request(Method::GET, Some(key), RawBody::Empty)).await;
        assert_eq!(seen.target, format!("/bucket/{path}"));
    }
}

#[tokio::test]
async fn parameters_keep_their_order_and_their_bytes() {
    let query = [("versions", ""), ("prefix", "a b/+&=%"), ("key-marker", "ü"), ("delimiter", "/")];
    let request = with(request(Method::GET, None, RawBody::Empty), &query, &[]);
    let seen = seen_of(Dialect::S3, request).await;
    let expected = "/bucket?versions&prefix=a%20b%2F%2B%26%3D%25&key-marker=%C3%BC&delimiter=%2F";
    assert_eq!(seen.target, expected);
    let service = RawRequest { bucket: None, ..self::request(Method::GET, None, RawBody::Empty) };
    assert_eq!(seen_of(Dialect::S3, service).await.target, "/");
}

#[tokio::test]
async fn the_bucket_goes_into_the_host_where_it_is_configured() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = config(Dialect::Oss, format!("http://s3.localhost:{port}"), limits());
    config.addressing = Some(Addressing::Virtual);
    let steps = vec![answer(200, "", ""), answer(200, "", "")];
    let double = Double::serve(listener, config, steps);
    send(&double, request(Method::GET, Some("/k"), RawBody::Empty)).await.unwrap();
    double.origin.head_bucket(&BucketName::new("bucket").unwrap()).await.unwrap();
    let seen = double.seen();
    for seen in &seen {
        assert_eq!(seen.header("host"), Some(format!("bucket.s3.localhost:{port}").as_str()));
        seen.verify("cn-test-1");
    }
    assert_eq!((seen[0].target.as_str(), seen[1].target.as_str()), ("//k", "/"));
}

#[tokio::test]
async fn headers_are_chosen_by_whoever_asks_but_for_those_of_the_connection() {
    let headers = [
        ("x-amz-meta-a", "one"),
        ("x-amz-meta-a", "two"),
        ("x-amz-meta-b", "ключ  два"),
        ("if-none-match", "*"),
        ("authorization", "of the client"),
        ("host", "elsewhere"),
        ("x-amz-date", "19700101T000000Z"),
        ("x-amz-security-token", "of the client"),
        ("x-amz-content-sha256", "of the client"),
        ("expect", "100-continue"),
        ("connection", "close"),
        ("content-length", "77"),
    ];
    let seen = seen_of(Dialect::S3, with(put(streamed("abc")), &[], &headers)).await;
    let metas = seen.headers.iter().filter(|(name, _)| name == "x-amz-meta-a");
    assert_eq!(metas.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(seen.header("if-none-match"), Some("*"));
    assert_eq!(seen.header("x-amz-security-token"), Some(TOKEN));
    assert_eq!(seen.header("expect"), None);
    assert_eq!(seen.declared(), Some(3));
    assert!(!seen.headers.iter().any(|(_, value)| value == "of the client"));
}

#[tokio::test]
async fn a_header_that_no_signature_can_cover_is_refused() {
    let mut request = put(RawBody::Empty);
    let latin = HeaderValue::from_bytes(b"caf\xe9").unwrap();
    request.headers.insert("x-amz-meta-a", latin);
    let double = Double::start(vec![]).await;
    let (answer, body) = send(&double, request).await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(String::from_utf8(body).unwrap().contains("x-amz-meta-a is not UTF-8"));
    assert!(double.seen().is_empty());
}

#[tokio::test]
async fn the_payload_is_hashed_where_it_can_be() {
    let get = seen_of(Dialect::S3, request(Method::GET, Some("key"), RawBody::Empty)).await;
    assert_eq!(get.header("x-amz-content-sha256"), Some(sha256("").as_str()));
    assert_eq!(get.declared(), None);
    let delete = seen_of(Dialect::S3, request(Method::DELETE, Some("key"), RawBody::Empty)).await;
    assert_eq!(delete.declared(), None);
    for method in [Method::PUT, Method::POST] {
        let empty = seen_of(Dialect::S3, request(method, Some("key"), RawBody::Empty)).await;
        assert_eq!(empty.declared(), Some(0));
        assert_eq!(empty.header("x-amz-content-sha256"), Some(sha256("").as_str()));
    }
    let whole = seen_of(Dialect::S3, put(RawBody::Whole("abc".into()))).await;
    assert_eq!(whole.header("x-amz-content-sha256"), Some(sha256("abc").as_str()));
    assert_eq!((whole.declared(), whole.body.as_slice()), (Some(3), &b"abc"[..]));
    let hash = Some("ab".repeat(32));
    let body = RawBody::Stream {
        len: 3,
        sha256: hash.clone(),
        trailer: None,
        bytes: pieces(vec![Ok("ab"), Ok("c")]),
    };
    let declared = seen_of(Dialect::S3, put(body)).await;
    assert_eq!(declared.header("x-amz-content-sha256"), hash.as_deref());
    let unsigned = seen_of(Dialect::S3, put(streamed("abc"))).await;
    assert_eq!(unsigned.header("x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));
    assert_eq!((unsigned.declared(), unsigned.body.as_slice()), (Some(3), &b"abc"[..]));
    let empty = seen_of(Dialect::S3, put(streamed(""))).await;
    assert_eq!(empty.declared(), Some(0));
}

const CRC32: &str = "x-amz-checksum-crc32";

#[tokio::test]
async fn s3_gets_the_checksum_as_a_trailer() {
    for (encoding, expected) in [
        (None, "aws-chunked"),
        (Some("gzip"), "aws-chunked,gzip"),
        (Some("aws-chunked, br"), "aws-chunked,br"),
    ] {
        let headers: Vec<_> = encoding.iter().map(|value| ("content-encoding", *value)).collect();
        let seen =
            seen_of(Dialect::S3, with(put(trailed("abc", CRC32, "NSRBwg==")), &[], &headers)).await;
        let sent = "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n";
        assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), sent);
        assert_eq!(seen.declared(), Some(sent.len()));
        assert_eq!(seen.header("x-amz-decoded-content-length"), Some("3"));
        assert_eq!(seen.header("x-amz-trailer"), Some(CRC32));
        assert_eq!(seen.header("content-encoding"), Some(expected));
        let payload = seen.header("x-amz-content-sha256");
        assert_eq!(payload, Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
    }
}

#[tokio::test]
async fn a_checksum_of_unknown_length_is_not_announced() {
    let headers = [("x-amz-sdk-checksum-algorithm", "NEW")];
    let request = with(put(trailed("abc", "x-amz-checksum-new", "AA")), &[], &headers);
    let seen = seen_of(Dialect::S3, request).await;
    assert_eq!(seen.body, b"abc");
    assert_eq!(seen.header("x-amz-trailer"), None);
    assert_eq!(seen.header("x-amz-sdk-checksum-algorithm"), None);
}

#[tokio::test]
async fn oss_and_bos_get_no_checksums_of_s3() {
    for dialect in [Dialect::Oss, Dialect::Bos] {
        let headers = [
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("x-amz-checksum-algorithm", "CRC32"),
            ("x-amz-meta-a", "kept"),
            ("content-encoding", "gzip"),
        ];
        let request = with(put(trailed("abc", CRC32, "NSRBwg==")), &[], &headers);
        let seen = seen_of(dialect, request).await;
        assert_eq!((seen.body.as_slice(), seen.declared()), (&b"abc"[..], Some(3)));
        assert_eq!(seen.header("x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));
        assert_eq!(seen.header("x-amz-meta-a"), Some("kept"));
        assert_eq!(seen.header("content-encoding"), Some("gzip"));
        assert!(!seen.headers.iter().any(|(name, _)| name.contains("checksum")), "{seen:?}");
        assert_eq!(seen.header("x-amz-trailer"), None);

        let mode = [("x-amz-checksum-mode", "ENABLED")];
        let get = with(self::request(Method::GET, Some("k"), RawBody::Empty), &[], &mode);
        assert_eq!(seen_of(dialect, get).await.header("x-amz-checksum-mode"), None);
    }
}

#[tokio::test]
async fn a_setting_has_a_digest_also_where_the_clients_checksum_is_dropped() {
    let checksum = [(CRC32, "NSRBwg==")];
    let post = || request(Method::POST, None, RawBody::Whole("<Delete/>".into()));
    let seen = seen_of(Dialect::Oss, with(post(), &[("delete", "")], &checksum)).await;
    let md5 = seen.header("content-md5").unwrap().to_owned();
    let expected = {
        use md5::{Digest as _, Md5};
        hex::encode(Md5::digest("<Delete/>"))
    };
    assert_eq!(base64_to_hex(&md5), expected);
    let seen = seen_of(Dialect::S3, with(post(), &[("delete", "")], &checksum)).await;
    assert_eq!(seen.header("content-md5"), None);
    assert_eq!(seen.header(CRC32), Some("NSRBwg=="));
    let part = [("partNumber", "1"), ("uploadId", "u")];
    let seen = seen_of(Dialect::Oss, with(put(RawBody::Whole("abc".into())), &part, &[])).await;
    assert_eq!(seen.header("content-md5"), None);
}

/// RFC 4648 §4, for what the digest of a body looks like.
fn base64_to_hex(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = Vec::new();
    for letter in text.trim_end_matches('=').bytes() {
        let value = LETTERS.iter().position(|known| *known == letter).unwrap();
        bits.extend((0..6).rev().map(|bit| value >> bit & 1));
    }
    let bytes = bits.chunks_exact(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit));
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_answer_comes_back_whole() {
    let headers = "etag: \"ABCDEF0123456789ABCDEF0123456789\"\r\nx-oss-hash-crc64ecma: 12\r\n\
        x-bce-storage-class: COLD\r\nx-odd: 1\r\nx-odd: 2\r\nx-amz-request-id: no\r\nserver: no\r\n\
        date: no\r\n";
    let double = Double::start(vec![answer(200, headers, "body")]).await;
    let (answer, body) = send(&double, put(streamed("abc"))).await.unwrap();
    assert_eq!((answer.status, body.as_slice()), (200, &b"body"[..]));
    assert_eq!(answer.headers["etag"], "\"ABCDEF0123456789ABCDEF0123456789\"");
    assert_eq!(answer.headers["content-length"], "4");
    assert_eq!(answer.headers.get_all("x-odd").iter().count(), 2);
    let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
    names.sort();
    let expected =
        ["content-length", "etag", "x-bce-storage-class", "x-odd", "x-oss-hash-crc64ecma"];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn the_length_of_a_head_is_kept() {
    for status in [200, 404] {
        let step = answer(status, "content-length: 42\r\n", "");
        let double = Double::start(vec![step]).await;
        let head = request(Method::HEAD, Some("key"), RawBody::Empty);
        let (answer, body) = send(&double, head).await.unwrap();
        assert_eq!((answer.status, body.len()), (status, 0));
        assert_eq!(answer.headers["content-length"], "42");
    }
}

#[tokio::test]
async fn errors_and_redirects_are_answers() {
    let redirect = answer(307, "location: http://127.0.0.1:1/elsewhere\r\n", "<Error/>");
    for (step, status) in [
        (redirect, 307),
        (error(403, "AccessDenied", ""), 403),
        (error(404, "NoSuchUpload", ""), 404),
        (error(412, "PreconditionFailed", ""), 412),
        (answer(304, "etag: \"A\"\r\ncontent-length: 5\r\n", ""), 304),
        (error(501, "NotImplemented", "<Header>x</Header>"), 501),
    ] {
        let sent = String::from_utf8(step.bytes.clone()).unwrap();
        let double = Double::start(vec![step]).await;
        let (answer, body) = send(&double, put(RawBody::Whole("abc".into()))).await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(double.seen().len(), 1, "{status}");
        let expected = sent.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_eq!(answer.headers.contains_key("location"), status == 307);
    }
}

#[tokio::test]
async fn our_keys_never_come_back() {
    let mention = format!("<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId>");
    let hidden = answer(403, &format!("x-debug: {TOKEN}\r\n"), "<Error><Code>X</Code></Error>");
    for (step, code) in [
        (error(403, "SignatureDoesNotMatch", &mention), "AccessDenied"),
        (error(403, "InvalidAccessKeyId", ""), "AccessDenied"),
        (error(400, "ExpiredToken", &format!("<Token-0>{TOKEN}</Token-0>")), "AccessDenied"),
        (error(403, "Odd", &mention), "Odd"),
        (hidden, "X"),
    ] {
        let double = Double::start(vec![step]).await;
        let (answer, body) = send(&double, put(streamed("abc"))).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains(&format!("<Code>{code}</Code>")), "{body}");
        assert!(!format!("{body}{:?}", answer.headers).contains("CANARY"), "{body}");
        assert_eq!(answer.headers["content-length"], body.len().to_string());
    }
}

#[tokio::test]
async fn an_endless_error_is_cut_short() {
    let long = format!("<Error><Code>Long</Code>{}</Error>", "x".repeat(70_000));
    let double = Double::start(vec![answer(400, "", &long)]).await;
    let (answer, body) = send(&double, put(streamed("abc"))).await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(body.len() < 1000 && String::from_utf8(body).unwrap().contains("<Code>Long</Code>"));
}

#[tokio::test]
async fn an_answer_holds_its_place_in_flight() {
    let narrow =
        OriginLimits { in_flight: 1, queue_timeout: Duration::from_millis(50), ..limits() };
    let steps = vec![answer(200, "", "a"), answer(200, "", "b")];
    let double = Double::with(Dialect::S3, narrow, steps).await;
    let held = double.origin.raw(put(RawBody::Empty)).await.unwrap();
    let failed = double.origin.raw(put(RawBody::Empty)).await.err().unwrap();
    assert!(matches!(failed, OriginError::Busy { .. }), "{failed}");
    drop(held);
    assert_eq!(send(&double, put(RawBody::Empty)).await.unwrap().1, b"b");
}

#[tokio::test]
async fn requests_are_counted_by_what_they_do() {
    let steps = vec![
        error(500, "", ""),
        answer(200, "", ""),
        answer(200, "", ""),
        answer(204, "", ""),
        answer(200, "", ""),
    ];
    let double = Double::start(steps).await;
    send(&double, put(RawBody::Empty)).await.unwrap();
    let copy = with(put(RawBody::Empty), &[], &[("x-amz-copy-source", "b/k")]);
    send(&double, copy).await.unwrap();
    send(&double, request(Method::DELETE, Some("k"), RawBody::Empty)).await.unwrap();
    let part = with(put(RawBody::Empty), &[("partNumber", "1"), ("uploadId", "u")], &[]);
    send(&double, part).await.unwrap();
    let mut counted = Vec::new();
    for metric in double.registry.gather().iter().flat_map(|family| family.get_metric().to_vec()) {
        let label = |name: &str| {
            let pair = metric.get_label().iter().find(|pair| pair.name() == name);
            pair.unwrap().value().to_owned()
        };
        counted.push(format!("{} {}", label("operation"), label("status")));
    }
    counted.sort();
    assert_eq!(counted, ["copy 200", "delete 204", "put 200", "put 500", "upload 200"]);
}
