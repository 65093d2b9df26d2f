//! Checksums of PUTs: in headers, in trailers, and told again.

use super::{ask, get, put};
use crate::fixture::{fixture, tmp_is_empty};
use http::Method;
use larder_model::OriginError;

/// Of `123456789` (the CRC catalogue), and of `abc` (FIPS 180).
const CRC32: &str = "y/Q5Jg==";
const CRC32C: &str = "4waSgw==";
const CRC64: &str = "rosUhgp5mIg=";
const SHA256: &str = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";

#[tokio::test]
async fn a_checksum_is_told_again_when_it_is_asked_for() {
    let fixture = fixture();
    for (name, bytes, sum) in [
        ("x-amz-checksum-crc32", "123456789", CRC32),
        ("x-amz-checksum-crc32c", "123456789", CRC32C),
        ("x-amz-checksum-crc64nvme", "123456789", CRC64),
        ("x-amz-checksum-sha256", "abc", SHA256),
    ] {
        let in_header = put("header", bytes.as_bytes()).header(name, sum);
        let in_trailer = ask(Method::PUT, "trailer").trailed(bytes.as_bytes(), name, Some(sum));
        for (key, request) in [("header", in_header), ("trailer", in_trailer)] {
            let told = fixture.ask(request).await;
            assert_eq!((told.outcome().as_str(), told.header(name)), ("200", Some(sum)), "{name}");
            assert_eq!(told.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
            let asked = get(key).header("x-amz-checksum-mode", "ENABLED");
            assert_eq!(fixture.ask(asked).await.header(name), Some(sum));
            let head = ask(Method::HEAD, key).header("x-amz-checksum-mode", "ENABLED");
            assert_eq!(fixture.ask(head).await.header(name), Some(sum));
            assert_eq!(fixture.ask(get(key)).await.header(name), None);
            let ranged = get(key).header("x-amz-checksum-mode", "ENABLED");
            let ranged = fixture.ask(ranged.header("range", "bytes=0-1")).await;
            assert_eq!((ranged.status, ranged.header(name)), (206, None));
        }
    }
    // Another content without one: the old one is not told of it.
    fixture.ask(put("header", b"new")).await;
    let head = ask(Method::HEAD, "header").header("x-amz-checksum-mode", "ENABLED");
    let told = fixture.ask(head).await;
    assert!(told.headers.keys().all(|name| !name.as_str().starts_with("x-amz-checksum")));
}

#[tokio::test]
async fn a_checksum_that_does_not_hold_leaves_nothing() {
    let fixture = fixture();
    let crc = |sum: &str| put("key", b"other").header("x-amz-checksum-crc32", sum);
    assert_eq!(fixture.outcome(crc(CRC32)).await, "400 BadDigest");
    assert_eq!(fixture.outcome(crc("nonsense")).await, "400 InvalidRequest");
    let both = put("key", b"123456789").header("x-amz-checksum-crc32c", CRC32C);
    let both = both.header("x-amz-checksum-crc32", CRC32);
    assert_eq!(fixture.outcome(both).await, "400 InvalidRequest");
    let trailed = |value| ask(Method::PUT, "key").trailed(b"other", "x-amz-checksum-crc32", value);
    assert_eq!(fixture.outcome(trailed(Some(CRC32))).await, "400 BadDigest");
    let unsent = fixture.try_ask(trailed(None)).await;
    assert!(matches!(unsent, Err(OriginError::BodyBroken)));
    let unknown = ask(Method::PUT, "key").trailed(b"x", "x-amz-checksum-xxhash3", Some("x"));
    assert_eq!(fixture.outcome(unknown).await, "501 NotImplemented");
    assert!(fixture.keys().await.is_empty() && tmp_is_empty(&fixture));
}
