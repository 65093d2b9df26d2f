//! TLS: both versions of HTTP by ALPN, and certificates that are replaced while the node serves.

use super::support::{Ask, Node, Setup};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use larder_gateway::Tls;
use rustls_pki_types::{CertificateDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a new certificate and its key; returns the certificate.
fn issue(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["s3.local".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

async fn node(folder: &Path) -> Node {
    let tls = Tls::load(&folder.join("tls.crt"), &folder.join("tls.key")).await.unwrap();
    Node::with(Setup { anonymous: true, tls: Some(tls), ..Setup::default() }).await
}

/// Connects, trusting `root` alone.
async fn connect(
    node: &Node,
    root: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(node.address).await?;
    let name = ServerName::try_from("s3.local").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The request that `ask` would send, as hyper's client wants it.
fn request(ask: &Ask, version: http::Version) -> http::Request<Empty<Bytes>> {
    let text = String::from_utf8(ask.to_bytes()).unwrap();
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let mut request = http::Request::builder().method(method).version(version);
    let mut uri = target.to_owned();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        match (name, version) {
            ("connection", _) => {}
            // HTTP/2 carries the host in :authority.
            ("host", http::Version::HTTP_2) => uri = format!("https://{value}{target}"),
            _ => request = request.header(name, value),
        }
    }
    request.uri(uri).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn http_2_and_http_1_are_spoken_by_alpn_and_signatures_hold_in_both() {
    let folder = tempfile::tempdir().unwrap();
    let root = issue(folder.path());
    let node = node(folder.path()).await;
    let signed = || node.get("/data/streamed").host("s3.local").header("range", "bytes=1-3");

    let stream = connect(&node, &root, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driver = tokio::spawn(connection);
    let answer = client.send_request(request(&signed(), http::Version::HTTP_2)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (206, http::Version::HTTP_2));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "123");
    let virtual_host = node.get("/k").host("data.s3.local");
    let answer = client.send_request(request(&virtual_host, http::Version::HTTP_2)).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "0123456789");
    // An error in mid-stream resets this stream and leaves the others alone.
    let cut = node.get("/data/cut").host("s3.local");
    let answer = client.send_request(request(&cut, http::Version::HTTP_2)).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    let unsigned = signed().late_header("x-amz-copy-source", "/data/secret");
    let answer = client.send_request(request(&unsigned, http::Version::HTTP_2)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 403);
    let two_hosts = signed().late_header("host", "elsewhere");
    let mut two_hosts = request(&two_hosts, http::Version::HTTP_2);
    *two_hosts.uri_mut() = "https://s3.local/data/k".parse().unwrap();
    two_hosts.headers_mut().insert("host", "elsewhere".parse().unwrap());
    let answer = client.send_request(two_hosts).await.unwrap();
    assert_eq!(answer.status().as_u16(), 400);
    drop(client);
    let _ = driver.await;

    let stream = connect(&node, &root, "http/1.1").await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let answer = client.send_request(request(&signed(), http::Version::HTTP_11)).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "123");
    drop(client);
    let _ = driver.await;
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let old = issue(folder.path());
    let node = node(folder.path()).await;
    connect(&node, &old, "h2").await.unwrap();
    std::fs::write(folder.path().join("tls.crt"), "no certificate").unwrap();
    // Two looks later the broken file has been seen; the old certificate must still be served.
    let seen = Instant::now() + Duration::from_secs(5);
    while Instant::now() < seen {
        connect(&node, &old, "h2").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let new = issue(folder.path());
    let deadline = Instant::now() + Duration::from_secs(30);
    while connect(&node, &new, "h2").await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is not served");
    }
    assert!(connect(&node, &old, "h2").await.is_err(), "the old one is gone");
}

#[tokio::test]
async fn files_that_do_not_belong_together_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (crt, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let missing = Tls::load(&crt, &key).await.unwrap_err().to_string();
    assert!(missing.contains("tls.crt"), "{missing}");
    issue(folder.path());
    let certificate = std::fs::read(&crt).unwrap();
    issue(folder.path());
    std::fs::write(&crt, certificate).unwrap();
    let apart = Tls::load(&crt, &key).await.unwrap_err().to_string();
    assert!(apart.contains("cannot be used together"), "{apart}");
}
