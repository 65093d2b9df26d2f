//! Bodies on their way to the origin: each form that clients send, and each way to break one. The
//! origin has the whole object or nothing.

use super::chunks::{Chunks, sha256_hex};
use super::double::{Arrived, Canned};
use super::support::{Ask, Form, Node, Reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Below and above what the gateway reads before it asks the origin.
const SIZES: [usize; 4] = [0, 10, 65_536, 300_000];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn crc32(payload: &[u8]) -> String {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, payload) as u32;
    STANDARD.encode(crc.to_be_bytes())
}

fn md5(payload: &[u8]) -> String {
    use md5::Digest as _;
    STANDARD.encode(md5::Md5::digest(payload))
}

fn put(node: &Node) -> Ask {
    node.ask("PUT", "/data/k").header("x-amz-meta-colour", "blue")
}

const CRC32: &str = "x-amz-checksum-crc32";

/// An upload in chunks; `damage` changes the body before it is sent.
fn chunked(
    ask: Ask,
    kind: Chunks,
    payload: &[u8],
    trailer: Option<(&str, &str)>,
    damage: impl FnOnce(&mut Vec<u8>),
) -> Ask {
    let mut ask = ask
        .header("x-amz-decoded-content-length", &payload.len().to_string())
        .header("content-encoding", "aws-chunked,gzip")
        .signed(|s| s.payload = kind.payload().to_owned());
    if let Some((name, _)) = trailer {
        ask = ask.header("x-amz-trailer", name);
    }
    let seed = ask.signature();
    let mut body = ask.signing.chunked(kind, &seed, payload, 65_536, trailer);
    damage(&mut body);
    ask.wire(body)
}

async fn check_stored(node: &Node, ask: Ask, payload: &[u8], what: &str) -> Arrived {
    let reply = ask.send().await;
    assert_eq!(
        (reply.status, reply.header("etag")),
        (200, Some("\"written\"")),
        "{what}: {}",
        reply.text()
    );
    let arrived = node.double.one();
    assert!(arrived.body.as_deref() == Some(payload), "{what}: another body");
    assert_eq!(arrived.header("x-amz-meta-colour"), Some("blue"), "{what}");
    for name in [
        "host",
        "authorization",
        "x-amz-date",
        "x-amz-content-sha256",
        "content-length",
        "x-amz-trailer",
        "x-amz-decoded-content-length",
    ] {
        assert_eq!(arrived.header(name), None, "{what}");
    }
    arrived
}

/// The request is refused, and the origin has nothing of it.
async fn check_refused(node: &Node, ask: Ask, code: &str, what: &str) -> Reply {
    let reply = ask.send().await;
    let status = match code {
        "SignatureDoesNotMatch" | "AccessDenied" => 403,
        "MissingContentLength" => 411,
        _ => 400,
    };
    reply.expect(status, code, what);
    let whole = node.double.take().into_iter().filter(|arrived| arrived.body.is_some()).count();
    assert_eq!(whole, 0, "{what}: the origin has it");
    reply
}

#[tokio::test]
async fn every_form_of_a_body_arrives_decoded() {
    let node = Node::writable().await;
    for len in SIZES {
        let payload = bytes(len);
        let (md5, crc) = (md5(&payload), crc32(&payload));
        let arrived = check_stored(&node, put(&node).body(&*payload), &payload, "hash").await;
        assert_eq!(format!("{:?}", arrived.changes), "Objects([\"k\"])");
        let ask = put(&node).header("content-md5", &md5).unsigned_body(&*payload);
        let arrived = check_stored(&node, ask, &payload, "MD5").await;
        assert_eq!(arrived.header("content-md5"), Some(&*md5));
        let ask = put(&node)
            .header(CRC32, &crc)
            .header("x-amz-sdk-checksum-algorithm", "CRC32")
            .unsigned_body(&*payload);
        let arrived = check_stored(&node, ask, &payload, "checksum").await;
        assert_eq!(arrived.header(CRC32), Some(&*crc));
        let ask = put(&node).form(Form::Presigned).wire(&*payload);
        check_stored(&node, ask, &payload, "presigned").await;
        for kind in [Chunks::Signed, Chunks::SignedTrailer, Chunks::UnsignedTrailer] {
            let trailer = Some((CRC32, &*crc)).filter(|_| kind != Chunks::Signed);
            let ask = chunked(put(&node), kind, &payload, trailer, |_| {});
            let arrived = check_stored(&node, ask, &payload, kind.payload()).await;
            assert_eq!(arrived.header("content-encoding"), Some("gzip"));
            let told =
                arrived.header(CRC32).or(arrived.trailer.as_ref().map(|(_, value)| &**value));
            assert_eq!(told, trailer.map(|(_, value)| value), "{kind:?}, {len} bytes");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_not_what_it_is_said_to_be_is_refused() {
    let node = Node::writable().await;
    for len in [10, 300_000] {
        let payload = bytes(len);
        let mut wrong = payload.clone();
        wrong[len / 2] ^= 1;
        let (md5, crc) = (md5(&wrong), crc32(&wrong));
        let hash = sha256_hex(&payload);
        let ask = put(&node).signed(|s| s.payload.clone_from(&hash)).wire(&*wrong);
        let reply = check_refused(&node, ask, "XAmzContentSHA256Mismatch", "hash").await;
        assert_eq!(reply.element("ClientComputedContentSHA256"), Some(hash));
        assert_eq!(reply.element("S3ComputedContentSHA256"), Some(sha256_hex(&wrong)));
        let ask = put(&node).header("content-md5", &md5).body(&*payload);
        check_refused(&node, ask, "BadDigest", "MD5").await;
        let ask = put(&node).header(CRC32, &crc).body(&*payload);
        check_refused(&node, ask, "BadDigest", "checksum").await;
        for kind in [Chunks::SignedTrailer, Chunks::UnsignedTrailer] {
            let ask = chunked(put(&node), kind, &payload, Some((CRC32, &crc)), |_| {});
            check_refused(&node, ask, "BadDigest", "trailer").await;
            let ask = chunked(put(&node), kind, &payload, Some((CRC32, "zzz")), |_| {});
            check_refused(&node, ask, "InvalidRequest", "no checksum").await;
            let ask = chunked(put(&node), kind, &payload, Some((CRC32, &crc)), |body| {
                let at = body.windows(3).rposition(|w| w == b"crc").unwrap();
                body[at] = b'x';
            });
            check_refused(&node, ask, "MalformedTrailerError", "another trailer").await;
        }
        let ask = chunked(put(&node), Chunks::Signed, &payload, None, |body| {
            let middle = 200 + len / 3;
            body[middle.min(90)] ^= 1;
        });
        check_refused(&node, ask, "SignatureDoesNotMatch", "chunk").await;
        let crc = crc32(&payload);
        let ask =
            chunked(put(&node), Chunks::SignedTrailer, &payload, Some((CRC32, &crc)), |body| {
                let at = body.len() - 6;
                body[at] = if body[at] == b'0' { b'1' } else { b'0' };
            });
        check_refused(&node, ask, "SignatureDoesNotMatch", "trailer's signature").await;
    }
}

#[tokio::test]
async fn a_body_of_another_length_is_refused() {
    let node = Node::writable().await;
    for len in [10, 300_000] {
        let payload = bytes(len);
        for kind in [Chunks::Signed, Chunks::SignedTrailer, Chunks::UnsignedTrailer] {
            let crc = crc32(&payload);
            let trailer = Some((CRC32, &*crc)).filter(|_| kind != Chunks::Signed);
            let cut = |body: &mut Vec<u8>| {
                let begin = body.iter().position(|b| *b == b'\n').unwrap();
                body.truncate(begin + 1 + len.min(65_536) / 2);
            };
            let ask = chunked(put(&node), kind, &payload, trailer, cut);
            check_refused(&node, ask, "IncompleteBody", "cut").await;
            // The declared length is one more, or one less, than what the chunks hold.
            for declared in [len - 1, len + 1] {
                let ask = put(&node)
                    .header("x-amz-decoded-content-length", &declared.to_string())
                    .signed(|s| s.payload = kind.payload().to_owned());
                let ask = match trailer {
                    Some((name, _)) => ask.header("x-amz-trailer", name),
                    None => ask,
                };
                let seed = ask.signature();
                let body = ask.signing.chunked(kind, &seed, &payload, 65_536, trailer);
                check_refused(&node, ask.wire(body), "IncompleteBody", "declared").await;
            }
        }
        let behind = |body: &mut Vec<u8>| body.extend(b"more");
        let ask = chunked(put(&node), Chunks::Signed, &payload, None, behind);
        check_refused(&node, ask, "MalformedTrailerError", "more behind the end").await;
    }
    let ask = put(&node).signed(|s| s.payload = "UNSIGNED-PAYLOAD".to_owned());
    check_refused(&node, ask, "MissingContentLength", "no length").await;
    let ask = put(&node).signed(|s| s.payload = Chunks::Signed.payload().to_owned()).wire("0");
    check_refused(&node, ask, "MissingContentLength", "no decoded length").await;
    let ask = put(&node).unsigned_body("").late_header("x-z", "1");
    let mut huge = String::from_utf8(ask.head()).unwrap();
    huge = huge.replace("content-length: 0", &format!("content-length: {}", (5_u64 << 30) + 1));
    let (answer, _) = node.raw(huge.as_bytes(), Duration::from_secs(10)).await;
    Reply::parse(&answer).expect(400, "EntityTooLarge", "more than 5 GiB");
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn promises_that_nobody_could_keep_are_refused_before_the_body_is_read() {
    let node = Node::writable().await;
    for (name, value, code) in [
        ("content-md5", "nonsense", "InvalidDigest"),
        (CRC32, "nonsense", "InvalidRequest"),
        ("x-amz-checksum-xxh", "AAAAAA==", "InvalidRequest"),
        ("x-amz-trailer", CRC32, "InvalidRequest"),
        ("x-amz-sdk-checksum-algorithm", "SHA1", "InvalidRequest"),
    ] {
        // Only the header is sent: nobody may wait for a body.
        let ask = put(&node).header(name, value).unsigned_body("12345");
        let (answer, _) = node.raw(&ask.head(), Duration::from_secs(10)).await;
        Reply::parse(&answer).expect(400, code, name);
    }
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn a_client_that_waits_is_told_to_go_on_only_when_all_else_is_right() {
    let node = Node::writable().await;
    let ask = put(&node).header("expect", "100-continue").body("0123456789");
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(&ask.head()).await.unwrap();
    let mut buffer = [0; 25];
    stream.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"0123456789").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(Reply::parse(&answer).status, 200);
    assert_eq!(node.double.one().text(), "0123456789");
    let refused = [
        (put(&node).signed(|s| s.secret.push('x')), 403),
        (node.ask("PUT", "/data/k?newthing"), 501),
        (put(&node).header("x-amz-new", "1"), 501),
        (node.ask("PUT", "/data/k").header("x-amz-copy-source", "nonsense"), 400),
    ];
    for (ask, status) in refused {
        let ask = ask.header("expect", "100-continue");
        let ask = ask.signed(|s| s.payload = sha256_hex(b"0123456789")).wire("0123456789");
        let (answer, closed) = node.raw(&ask.head(), Duration::from_secs(10)).await;
        assert_eq!(Reply::parse(&answer).status, status, "{}", String::from_utf8_lossy(&answer));
        assert!(closed, "a body that was announced may still come");
    }
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn a_refusal_is_heard_by_a_client_that_sends_all_before_it_listens() {
    let node = Node::start().await;
    let payload = bytes(4 << 20);
    let ask = node.ask("PUT", "/data/k").unsigned_body(payload);
    let reply = ask.send().await;
    reply.expect(403, "AccessDenied", "read only");
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(node.double.take().is_empty());
}

#[tokio::test]
async fn an_answer_before_the_bodys_end_is_heard() {
    let node = Node::writable().await;
    let early =
        Canned { early: true, ..Canned::xml(403, "<Error><Code>AccessDenied</Code></Error>") };
    node.double.answer(early.clone());
    let reply = put(&node).unsigned_body(bytes(1 << 20)).send().await;
    assert_eq!((reply.status, &*reply.element("Code").unwrap()), (403, "AccessDenied"));
    // An origin that calls a body stored which it has not got is not believed.
    node.double.answer(Canned { early: true, ..Canned::default() });
    let reply = put(&node).unsigned_body(bytes(1 << 20)).send().await;
    reply.expect(503, "ServiceUnavailable", "too early");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_origin_with_nothing() {
    let node = Node::writable().await;
    for len in [1000, 300_000] {
        let ask = put(&node).body(bytes(len));
        let all = ask.to_bytes();
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        stream.write_all(&all[..all.len() - 1]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        if !answer.is_empty() {
            Reply::parse(&answer).expect(400, "IncompleteBody", "cut short");
        }
    }
    // A connection that is reset rather than ended.
    let all = put(&node).body(bytes(300_000)).to_bytes();
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(&all[..200_000]).await.unwrap();
    drop(stream);
    assert!(node.double.take().iter().all(|arrived| arrived.body.is_none()));
    assert_eq!(node.get("/data/k").send().await.status, 200, "the node goes on");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_is_dropped() {
    let node = Node::writable().await;
    for len in [1000, 300_000] {
        let ask = put(&node).body(bytes(len));
        let all = ask.to_bytes();
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        stream.write_all(&all[..all.len() - 500]).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Reply::parse(&answer).expect(400, "RequestTimeout", "stalled");
        assert!(node.double.take().iter().all(|arrived| arrived.body.is_none()));
    }
}

#[tokio::test]
async fn a_body_in_both_kinds_of_chunks_arrives_and_the_connection_goes_on() {
    let node = Node::writable().await;
    let (payload, mut sent) = (bytes(200_000), Vec::new());
    let crc = crc32(&payload);
    for _ in 0..2 {
        let ask =
            chunked(put(&node), Chunks::UnsignedTrailer, &payload, Some((CRC32, &crc)), |_| {});
        let all = String::from_utf8_lossy(&ask.head()).replace("connection: close\r\n", "");
        let at = all.find("\r\ncontent-length").unwrap() + 2;
        let line = all[at..].find("\r\n").unwrap();
        let head = format!("{}transfer-encoding: chunked{}", &all[..at], &all[at + line..]);
        sent.extend(head.into_bytes());
        let body = &ask.to_bytes()[ask.head().len()..];
        for piece in body.chunks(10_000) {
            sent.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            sent.extend(piece);
            sent.extend(b"\r\n");
        }
        sent.extend(b"0\r\n\r\n");
    }
    let (answer, _) = node.raw(&sent, Duration::from_secs(1)).await;
    let text = String::from_utf8_lossy(&answer);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    let arrived = node.double.take();
    assert!(arrived.iter().all(|one| one.body.as_deref() == Some(&*payload)) && arrived.len() == 2);
    // A length behind the encoding is dropped by hyper; another reader might go by it.
    let text = String::from_utf8_lossy(&sent);
    for length in ["5", "0"] {
        let both = format!("transfer-encoding: chunked\r\ncontent-length: {length}");
        let twice = text.replace("transfer-encoding: chunked", &both);
        let (answer, closed) = node.raw(twice.as_bytes(), Duration::from_secs(5)).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 400") && closed, "{text}");
    }
    assert!(node.double.take().is_empty());
}
