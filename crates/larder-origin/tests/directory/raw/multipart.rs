//! Multipart uploads.

use super::{Ask, ask, ask_bucket, get, put};
use crate::fixture::{Fixture, MIB, fixture, tmp_is_empty};
use bytes::Bytes;
use http::Method;
use larder_model::{BodyBroken, OriginError};

const FIVE: usize = 5 * MIB;

fn create(key: &str) -> Ask {
    ask(Method::POST, key).query("uploads", "")
}

fn part(key: &str, id: &str, number: u32, bytes: &[u8]) -> Ask {
    ask(Method::PUT, key).query("partNumber", number).query("uploadId", id).whole(bytes)
}

fn complete(key: &str, id: &str, parts: &[(u32, &str)]) -> Ask {
    let parts: String = parts
        .iter()
        .map(|(number, rest)| format!("<Part><PartNumber>{number}</PartNumber>{rest}</Part>"))
        .collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    ask(Method::POST, key).query("uploadId", id).whole(document.as_bytes())
}

fn etag(tag: &str) -> String {
    format!("<ETag>{}</ETag>", tag.replace('"', "&quot;"))
}

impl Fixture {
    async fn begin(&self, ask: Ask) -> String {
        let told = self.ask(ask).await;
        assert_eq!(told.outcome(), "200", "{}", told.text());
        told.first("UploadId")
    }
}

#[tokio::test]
async fn parts_become_one_object() {
    let fixture = fixture();
    let begun = create("big/key").header("content-type", "text/odd").header("x-amz-tagging", "a=b");
    let told = fixture.ask(begun).await;
    assert_eq!((told.first("Bucket").as_str(), told.first("Key").as_str()), ("bucket", "big/key"));
    let id = told.first("UploadId");
    let replaced = fixture.ask(part("big/key", &id, 1, &vec![0; FIVE])).await.tag();
    let first = fixture.ask(part("big/key", &id, 1, &vec![1; FIVE])).await.tag();
    let last = fixture.ask(part("big/key", &id, 9, b"end")).await.tag();
    assert_eq!(last, "\"7f021a1415b86f2d013b2618fb31ae53\"");
    assert!(fixture.keys().await.is_empty());

    let (first, last, replaced) = (etag(&first), etag(&last), etag(&replaced));
    let refused = async |parts: &[(u32, &str)], expected: &str| {
        assert_eq!(fixture.outcome(complete("big/key", &id, parts)).await, expected, "{parts:?}");
    };
    refused(&[], "400 MalformedXML").await;
    refused(&[(1, "")], "400 MalformedXML").await;
    refused(&[(1, &format!("{first}<Strange/>"))], "400 MalformedXML").await;
    refused(&[(1, &replaced)], "400 InvalidPart").await;
    refused(&[(2, &first)], "400 InvalidPart").await;
    refused(&[(9, &last), (1, &first)], "400 InvalidPartOrder").await;
    refused(&[(1, &first), (1, &first)], "400 InvalidPartOrder").await;
    assert!(fixture.keys().await.is_empty() && tmp_is_empty(&fixture));

    let done = fixture.ask(complete("big/key", &id, &[(1, &first), (9, &last)])).await;
    assert_eq!(
        (done.outcome().as_str(), done.first("Location").as_str()),
        ("200", "/bucket/big/key")
    );
    let told = fixture.ask(get("big/key")).await;
    assert_eq!(done.first("ETag").replace("&quot;", "\""), told.tag());
    assert_eq!(told.header("content-type"), Some("text/odd"));
    assert_eq!(told.header("x-amz-tagging-count"), Some("1"));
    assert!(told.body.len() == FIVE + 3 && told.body[..FIVE].iter().all(|b| *b == 1));
    refused(&[(1, &first)], "404 NoSuchUpload").await;
    assert!(fixture.private("uploads").is_empty() && tmp_is_empty(&fixture));
}

#[tokio::test]
async fn small_parts_and_failed_conditions_leave_the_upload() {
    let fixture = fixture();
    let id = fixture.begin(create("key")).await;
    let one = etag(&fixture.ask(part("key", &id, 1, b"small")).await.tag());
    let two = etag(&fixture.ask(part("key", &id, 2, b"small too")).await.tag());
    let both = complete("key", &id, &[(1, &one), (2, &two)]);
    assert_eq!(fixture.outcome(both).await, "400 EntityTooSmall");
    fixture.ask(put("key", b"there")).await;
    let complete = || complete("key", &id, &[(2, &two)]);
    let absent = complete().header("if-none-match", "*");
    assert_eq!(fixture.outcome(absent).await, "412 PreconditionFailed");
    let size = complete().header("x-amz-mp-object-size", "5");
    assert_eq!(fixture.outcome(size).await, "400 InvalidRequest");
    assert_eq!(fixture.ask(get("key")).await.text(), "there");
    let size = complete().header("x-amz-mp-object-size", "9");
    assert_eq!(fixture.outcome(size).await, "200");
    assert_eq!(fixture.ask(get("key")).await.text(), "small too");
}

#[tokio::test]
async fn a_part_that_breaks_off_leaves_the_one_before() {
    let fixture = fixture();
    let id = fixture.begin(create("key")).await;
    fixture.ask(part("key", &id, 1, b"first")).await;
    let pieces = vec![Ok(Bytes::from(vec![1; 2 * MIB])), Err(BodyBroken)];
    let broken = part("key", &id, 1, b"").stream(4 * MIB, pieces);
    assert!(matches!(fixture.try_ask(broken).await, Err(OriginError::BodyBroken)));
    let list = || get("key").query("uploadId", &id);
    let told = fixture.ask(list()).await;
    assert_eq!((told.all("PartNumber"), told.all("Size")), (vec!["1"], vec!["5"]));
    assert!(tmp_is_empty(&fixture));
    for (number, expected) in [(0, "400 InvalidArgument"), (10_001, "400 InvalidArgument")] {
        assert_eq!(fixture.outcome(part("key", &id, number, b"x")).await, expected);
    }
    assert_eq!(fixture.outcome(part("other", &id, 1, b"x")).await, "404 NoSuchUpload");
    assert_eq!(fixture.outcome(part("key", "../../x", 1, b"x")).await, "404 NoSuchUpload");
    let abort = || ask(Method::DELETE, "key").query("uploadId", &id);
    assert_eq!(fixture.outcome(abort()).await, "204");
    assert_eq!(fixture.outcome(abort()).await, "404 NoSuchUpload");
    assert_eq!(fixture.outcome(list()).await, "404 NoSuchUpload");
    assert_eq!(fixture.outcome(part("key", &id, 1, b"x")).await, "404 NoSuchUpload");
    assert!(fixture.private("").is_empty());
}

#[tokio::test]
async fn parts_are_copied_whole_and_by_range() {
    let fixture = fixture();
    let source: Vec<u8> = (0..FIVE + 100).map(|i| (i / 3) as u8).collect();
    fixture.ask(put("source", &source)).await;
    fixture.write("empty", "");
    let id = fixture.begin(create("key").header("x-amz-checksum-algorithm", "CRC32")).await;
    let copy =
        |number: u32, from: &str| part("key", &id, number, b"").header("x-amz-copy-source", from);
    let range = |number, range: &str| {
        copy(number, "bucket/source").header("x-amz-copy-source-range", range)
    };
    let first = fixture.ask(range(1, "bytes=100-5242979")).await;
    assert_eq!(first.outcome(), "200");
    assert!(first.first("LastModified").ends_with('Z') && !first.first("ChecksumCRC32").is_empty());
    let second = fixture.ask(copy(2, "/bucket/source")).await;
    let third = fixture.ask(copy(3, "bucket/empty")).await;
    for odd in
        ["bytes=0-5242980", "bytes=5242980-5242980", "bytes=1-", "bytes=-1", "0-1", "bytes=2-1"]
    {
        assert_eq!(fixture.outcome(range(4, odd)).await, "400 InvalidArgument", "{odd}");
    }
    assert_eq!(fixture.outcome(copy(4, "bucket/none")).await, "404 NoSuchKey");
    let stale = copy(4, "bucket/source").header("x-amz-copy-source-if-match", "\"other\"");
    assert_eq!(fixture.outcome(stale).await, "412 PreconditionFailed");
    let parts: Vec<_> = [&first, &second, &third]
        .map(|told| format!("<ETag>{}</ETag>", told.first("ETag")))
        .into_iter()
        .zip(1..)
        .collect();
    let parts: Vec<_> = parts.iter().map(|(tag, number)| (*number, tag.as_str())).collect();
    assert_eq!(fixture.outcome(complete("key", &id, &parts)).await, "200");
    let told = fixture.ask(get("key")).await;
    assert!(told.body == [&source[100..], &source[..]].concat());
}

#[tokio::test]
async fn parts_are_listed_in_pages() {
    let fixture = fixture();
    let begun = create("a key").header("x-amz-checksum-algorithm", "CRC32C");
    let id = fixture.begin(begun).await;
    for number in [3, 1, 7] {
        fixture.ask(part("a key", &id, number, b"123456789")).await;
    }
    let list = || get("a key").query("uploadId", &id);
    let told = fixture.ask(list().query("encoding-type", "url")).await;
    assert_eq!(told.all("PartNumber"), ["1", "3", "7"]);
    assert_eq!(told.all("ChecksumCRC32C"), ["4waSgw=="; 3]);
    assert_eq!(told.first("ChecksumType"), "COMPOSITE");
    assert_eq!(
        (told.first("IsTruncated").as_str(), told.first("Key").as_str()),
        ("false", "a%20key")
    );
    let first = fixture.ask(list().query("max-parts", 2)).await;
    assert_eq!(first.all("PartNumber"), ["1", "3"]);
    assert_eq!(
        (first.first("IsTruncated").as_str(), first.first("NextPartNumberMarker").as_str()),
        ("true", "3")
    );
    let second = fixture.ask(list().query("part-number-marker", 3).query("max-parts", 2)).await;
    assert_eq!(
        (second.all("PartNumber"), second.first("IsTruncated")),
        (vec!["7"], "false".to_owned())
    );
    assert_eq!(fixture.outcome(list().query("max-parts", "-1")).await, "400 InvalidArgument");
}

#[tokio::test]
async fn uploads_are_listed_in_pages_rolled_up_and_in_the_order_of_their_age() {
    let fixture = fixture();
    let mut ids = Vec::new();
    for key in ["b", "a/2", "a/1", "b", "c d"] {
        ids.push(fixture.begin(create(key)).await);
    }
    let list = || ask_bucket(Method::GET).query("uploads", "");
    let told = fixture.ask(list()).await;
    assert_eq!(told.all("Key"), ["a/1", "a/2", "b", "b", "c d"]);
    let order = [&ids[2], &ids[1], &ids[0], &ids[3], &ids[4]];
    assert_eq!(told.all("UploadId"), order);
    let rolled = fixture.ask(list().query("delimiter", "/").query("encoding-type", "url")).await;
    assert_eq!(rolled.all("Key"), ["b", "b", "c%20d"]);
    assert_eq!(rolled.all("CommonPrefixes"), ["<Prefix>a/</Prefix>"]);
    let below = fixture.ask(list().query("delimiter", "/").query("prefix", "a/")).await;
    assert_eq!(below.all("Key"), ["a/1", "a/2"]);

    for delimiter in ["", "/"] {
        let (mut seen, mut next) = (Vec::new(), None);
        loop {
            let mut page = list().query("max-uploads", 1).query("delimiter", delimiter);
            if let Some((key, id)) = next {
                page = page.query("key-marker", key).query("upload-id-marker", id);
            }
            let told = fixture.ask(page).await;
            seen.extend(told.all("UploadId").into_iter().map(str::to_owned));
            seen.extend(told.all("CommonPrefixes").into_iter().map(str::to_owned));
            if told.first("IsTruncated") == "false" {
                break;
            }
            next = Some((told.first("NextKeyMarker"), told.first("NextUploadIdMarker")));
        }
        let expected: Vec<_> = match delimiter {
            "" => order.into_iter().cloned().collect(),
            _ => ["<Prefix>a/</Prefix>"]
                .into_iter()
                .map(str::to_owned)
                .chain(order[2..].iter().map(|id| (*id).clone()))
                .collect(),
        };
        assert_eq!(seen, expected, "delimiter {delimiter:?}");
    }
    let behind = fixture.ask(list().query("key-marker", "b")).await;
    assert_eq!(behind.all("Key"), ["c d"]);
}

#[tokio::test]
async fn checksums_of_parts_make_the_objects() {
    let fixture = fixture();
    let bytes = vec![1; FIVE];
    for (algorithm, kind, name, element) in [
        ("CRC32", "FULL_OBJECT", "x-amz-checksum-crc32", "ChecksumCRC32"),
        ("CRC32", "COMPOSITE", "x-amz-checksum-crc32", "ChecksumCRC32"),
        ("SHA256", "COMPOSITE", "x-amz-checksum-sha256", "ChecksumSHA256"),
    ] {
        let begun = create("key")
            .header("x-amz-checksum-algorithm", algorithm)
            .header("x-amz-checksum-type", kind);
        let id = fixture.begin(begun).await;
        let first = fixture.ask(part("key", &id, 1, &bytes)).await;
        let last = fixture.ask(part("key", &id, 2, b"123456789")).await;
        let named = |told: &super::Told| {
            let sum = told.header(name).unwrap();
            format!("{}<{element}>{sum}</{element}>", etag(&told.tag()))
        };
        let (one, two) = (named(&first), named(&last));
        let swapped =
            format!("{}<{element}>{}</{element}>", etag(&first.tag()), last.header(name).unwrap());
        let wrong = complete("key", &id, &[(1, &swapped), (2, &two)]);
        assert_eq!(fixture.outcome(wrong).await, "400 InvalidPart");
        let stated = complete("key", &id, &[(1, &one), (2, &two)]);
        let stated = stated.header(name, first.header(name).unwrap());
        assert_eq!(fixture.outcome(stated).await, "400 BadDigest");
        let done = fixture.ask(complete("key", &id, &[(1, &one), (2, &two)])).await;
        let sum = done.first(element);
        let head = ask(Method::HEAD, "key").header("x-amz-checksum-mode", "ENABLED");
        let head = fixture.ask(head).await;
        assert_eq!(head.header(name), Some(sum.as_str()));
        assert_eq!(head.header("x-amz-checksum-type"), Some(kind));
        assert_eq!(sum.ends_with("-2"), kind == "COMPOSITE", "{sum}");
        if kind == "FULL_OBJECT" {
            // The same bytes in one piece, with that checksum.
            let whole = [&bytes[..], b"123456789"].concat();
            assert_eq!(fixture.outcome(put("whole", &whole).header(name, &sum)).await, "200");
        }
    }
}

#[tokio::test]
async fn checksums_that_do_not_go_together_are_refused() {
    let fixture = fixture();
    let create = |algorithm: &str, kind: &str| {
        create("key")
            .header("x-amz-checksum-algorithm", algorithm)
            .header("x-amz-checksum-type", kind)
    };
    for (algorithm, kind) in [("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), ("CRC32", "X")]
    {
        assert_eq!(fixture.outcome(create(algorithm, kind)).await, "400 InvalidRequest");
    }
    let id = fixture.begin(create("CRC32", "COMPOSITE")).await;
    let other = part("key", &id, 1, b"123456789").header("x-amz-checksum-crc32c", "4waSgw==");
    assert_eq!(fixture.outcome(other).await, "400 InvalidRequest");
    let wrong = part("key", &id, 1, b"12345678").header("x-amz-checksum-crc32", "y/Q5Jg==");
    assert_eq!(fixture.outcome(wrong).await, "400 BadDigest");
    let right = part("key", &id, 1, b"123456789").header("x-amz-checksum-crc32", "y/Q5Jg==");
    assert_eq!(fixture.ask(right).await.header("x-amz-checksum-crc32"), Some("y/Q5Jg=="));
}
