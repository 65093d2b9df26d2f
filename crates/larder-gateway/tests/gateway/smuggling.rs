//! Requests whose end is in doubt, over raw sockets, to a node that lets anybody in: if one of them
//! could carry a second request past us, that would be answered with the canary object.

use super::support::{Node, Setup};
use std::time::Duration;

/// How long a connection that is still open may stay quiet before it counts as waiting.
const QUIET: Duration = Duration::from_millis(400);

const SECOND: &str = "GET /data/secret HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// What must come of a request: one of these statuses, or nothing but a closed connection.
async fn check(node: &Node, what: &str, bytes: &[u8], allowed: &[u16]) {
    let (answer, closed) = node.raw(bytes, QUIET).await;
    let text = String::from_utf8_lossy(&answer);
    let statuses: Vec<u16> = text
        .match_indices("HTTP/1.")
        .filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok())
        .collect();
    assert!(statuses.len() <= 1, "{what}: {statuses:?}");
    assert!(!text.contains("SMUGGLED"), "{what}: {text}");
    match statuses.first() {
        Some(status) => assert!(allowed.contains(status), "{what}: {text}"),
        // Waiting for the rest of a request is not an answer.
        None => assert!(closed || allowed.is_empty(), "{what}: nothing came, and nothing ended"),
    }
    assert!(closed || statuses.is_empty(), "{what}: the connection stays open behind {statuses:?}");
}

async fn node() -> Node {
    Node::with(Setup { anonymous: true, ..Setup::default() }).await
}

#[tokio::test]
async fn lengths_that_contradict_each_other_are_refused() {
    let node = node().await;
    let n = SECOND.len();
    for method in ["GET", "POST"] {
        let head =
            |lines: &str| format!("{method} /data/k HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n");
        let te = "transfer-encoding: chunked\r\n";
        let cl = format!("content-length: {n}\r\n");
        let cases = [
            ("CL.TE", head(&format!("{cl}{te}")) + "0\r\n\r\n" + SECOND),
            ("TE.CL", head(&format!("{te}{cl}")) + "0\r\n\r\n" + SECOND),
            ("TE", head(te) + "0\r\n\r\n" + SECOND),
            ("TE.TE", head(&format!("{te}transfer-encoding: identity\r\n")) + "0\r\n\r\n" + SECOND),
            ("TE twice", head(&format!("{te}{te}")) + "0\r\n\r\n" + SECOND),
            ("TE list", head("transfer-encoding: gzip, chunked\r\n") + "0\r\n\r\n" + SECOND),
            ("TE capitals", head("Transfer-Encoding: CHUNKED\r\n") + "0\r\n\r\n" + SECOND),
            ("TE tab", head("transfer-encoding:\tchunked\r\n") + "0\r\n\r\n" + SECOND),
            ("TE odd", head("transfer-encoding: xchunked\r\n") + "0\r\n\r\n" + SECOND),
            ("TE identity", head("transfer-encoding: identity\r\n") + SECOND),
            ("CL.CL", head(&format!("content-length: 0\r\n{cl}")) + SECOND),
            ("CL list", head(&format!("content-length: 0, {n}\r\n")) + SECOND),
            ("CL plus", head(&format!("content-length: +{n}\r\n")) + SECOND),
            ("CL minus", head("content-length: -1\r\n") + SECOND),
            ("CL hex", head("content-length: 0x10\r\n") + SECOND),
            ("CL huge", head("content-length: 99999999999999999999\r\n") + SECOND),
            ("chunk extension", head(te) + "0;a=\"\r\n\r\n\"\r\n\r\n" + SECOND),
            ("chunk size", head(te) + "0x0\r\n\r\n" + SECOND),
            ("chunk bare LF", head(te) + "0\n\n" + SECOND),
            ("chunk trailer", head(te) + "0\r\ncontent-length: 5\r\n\r\n" + SECOND),
        ];
        for (what, bytes) in &cases {
            let what = format!("{method} {what}");
            check(&node, &what, bytes.as_bytes(), &[400, 501]).await;
        }
    }
    assert!(node.double.read.lock().unwrap().is_empty(), "nothing was read");
}

#[tokio::test]
async fn a_body_on_a_read_is_refused_and_not_read_as_a_request() {
    let node = node().await;
    for method in ["GET", "HEAD"] {
        let bytes = format!(
            "{method} /data/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{SECOND}{SECOND}",
            SECOND.len()
        );
        check(&node, method, bytes.as_bytes(), &[400]).await;
    }
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let node = node().await;
    let cases: [(&str, Vec<u8>); 21] = [
        (
            "obs-fold",
            b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: 1\r\n\tcontent-length: 5\r\n\r\n".to_vec(),
        ),
        ("fold at once", b"GET /data/k HTTP/1.1\r\n host: localhost\r\n\r\n".to_vec()),
        (
            "space before colon",
            b"GET /data/k HTTP/1.1\r\nhost: localhost\r\ncontent-length : 5\r\n\r\n".to_vec(),
        ),
        ("NUL in value", b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: a\0b\r\n\r\n".to_vec()),
        ("NUL in name", b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx\0a: b\r\n\r\n".to_vec()),
        ("NUL in path", b"GET /data/\0k HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        (
            "bare CR",
            b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: b\rcontent-length: 5\r\n\r\n".to_vec(),
        ),
        ("no host", b"GET /data/k HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts", b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nhost: y\r\n\r\n".to_vec()),
        (
            "absolute form, other host",
            b"GET http://y/data/secret HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        ),
        ("CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /data/secret\r\n\r\n".to_vec()),
        ("HTTP/3.0", b"GET /data/secret HTTP/3.0\r\nhost: localhost\r\n\r\n".to_vec()),
        ("no target", b"GET  HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        ("space in target", b"GET /data/secret x HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        (
            "preface with a request",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /data/secret HTTP/1.1\r\nhost: localhost\r\n\r\n"
                .to_vec(),
        ),
        ("half a preface", b"PRI * HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        ("bare LF", b"GET /data/secret HTTP/1.1\nhost: localhost\n\n".to_vec()),
        (
            "request in a value",
            b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: b\n\nGET /data/secret HTTP/1.1\r\nhost: localhost\r\n\r\n"
                .to_vec(),
        ),
        (
            "length in a value",
            b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: b\ncontent-length: 0\r\n\r\n".to_vec(),
        ),
        (
            "TLS hello",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on and so forth".to_vec(),
        ),
    ];
    for (what, bytes) in &cases {
        check(&node, what, bytes, &[400, 405]).await;
    }
    assert!(node.double.read.lock().unwrap().is_empty(), "nothing was read");
}

#[tokio::test]
async fn a_body_hides_no_bare_line_feed() {
    let node = node().await;
    let after = "PUT /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: b\ncontent-length: 80\r\n\r\n";
    let after = format!("{after}{SECOND}{SECOND}{SECOND}");
    check(&node, "length behind a bare LF", after.as_bytes(), &[400]).await;
    // A good request with a body first: what follows it on the connection is looked at as well.
    let first = "PUT /data/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n\n\n";
    let second = "GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: b\n\nGET /data/secret HTTP/1.1\r\n\
        host: localhost\r\n\r\n";
    let (answer, closed) = node.raw(format!("{first}{second}").as_bytes(), QUIET).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(closed && !text.contains("SMUGGLED") && !text.contains("200 OK"), "{text}");
}

#[tokio::test]
async fn too_much_of_anything_is_refused() {
    let node = node().await;
    let many: String = (0..200).map(|i| format!("x-{i}: 1\r\n")).collect();
    let many = format!("GET /data/k HTTP/1.1\r\nhost: localhost\r\n{many}\r\n");
    check(&node, "many headers", many.as_bytes(), &[400, 431]).await;
    let wide =
        format!("GET /data/k HTTP/1.1\r\nhost: localhost\r\nx-a: {}\r\n\r\n", "a".repeat(100_000));
    check(&node, "wide header", wide.as_bytes(), &[400, 431]).await;
    let long = format!("GET /data/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "k".repeat(100_000));
    check(&node, "long target", long.as_bytes(), &[400, 414, 431]).await;
    let name =
        format!("GET /data/k HTTP/1.1\r\nhost: localhost\r\n{}: 1\r\n\r\n", "n".repeat(70_000));
    check(&node, "long name", name.as_bytes(), &[400, 431]).await;
}

#[tokio::test]
async fn an_upgrade_is_ignored() {
    let node = node().await;
    let bytes =
        b"GET /data/k HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, http2-settings, close\r\n\
        upgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n";
    let (answer, closed) = node.raw(bytes, QUIET).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("0123456789"), "{text}");
    assert!(closed);
}

#[tokio::test]
async fn two_good_requests_in_one_packet_get_two_answers_in_order() {
    let node = node().await;
    let two = "GET /data/k HTTP/1.1\r\nhost: localhost\r\n\r\n\
        GET /data/streamed HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-1\r\nconnection: close\r\n\r\n";
    let (answer, closed) = node.raw(two.as_bytes(), QUIET).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(closed && text.contains("0123456789HTTP/1.1 206") && text.ends_with("01"), "{text}");
}
