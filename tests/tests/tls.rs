//! The endpoint over TLS, with a certificate of an authority made for the test: HTTP/1.1 and HTTP/2,
//! and a certificate that is replaced while the node runs.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use larder_tests::client::{Ask, Client};
use larder_tests::larder::{ACCESS_KEY, Larder, SECRET, cache, dataset, directory_origin};
use larder_tests::oracle::Oracle;
use larder_tests::poll;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const SIZE: u64 = 3_000_000;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone())?;
        Ok(Self { issuer: Issuer::new(params, key), roots })
    }

    /// Writes a new certificate for `localhost` and its key, and tells its serial bytes.
    fn issue(&self, dir: &Path) -> Result<Vec<u8>> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec!["localhost".to_owned()])?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // The key first: a node that reads in between finds a pair that does not match, and waits.
        std::fs::write(dir.join("tls.key"), key.serialize_pem())?;
        std::fs::write(dir.join("tls.crt"), certificate.pem())?;
        Ok(certificate.der().to_vec())
    }

    async fn connect(&self, port: &str, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await?;
        let name = ServerName::try_from("localhost")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

async fn start(authority: &Authority, origin: &Path) -> Result<(Larder, Vec<u8>)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("secret"), SECRET)?;
    let certificate = authority.issue(dir.path())?;
    let config = format!(
        "[listen]\ns3 = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         tls = {{ cert = \"tls.crt\", key = \"tls.key\" }}\n{}{}{}\
         [key.{ACCESS_KEY}]\nsecret = \"file:secret\"\nallow = [\"data:read\"]\n",
        cache("32MiB", None),
        directory_origin("files", origin),
        dataset("data", "files", "data", "freshness = \"immutable\"")
    );
    std::fs::write(dir.path().join("larder.toml"), config)?;
    Ok((Larder::start_in(dir, Vec::new()).await?, certificate))
}

/// The client signs for the name in the certificate, which the Host header must be.
fn signer(larder: &Larder) -> Client {
    Client::new(&format!("https://localhost:{}", larder.port()), ACCESS_KEY, SECRET)
}

async fn get(larder: &Larder, stream: TlsStream<TcpStream>, second_version: bool) -> Result<Bytes> {
    let mut request = signer(larder).sign(&Ask::object(Method::GET, "data", "k"))?.request;
    let io = TokioIo::new(stream);
    if second_version {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        let running = tokio::spawn(connection);
        let answer = read(sender.send_request(request).await?).await;
        running.abort();
        answer
    } else {
        let host = format!("localhost:{}", larder.port());
        request.headers_mut().insert("host", host.parse()?);
        *request.uri_mut() = request.uri().path().parse()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(io).await?;
        let running = tokio::spawn(connection);
        let answer = read(sender.send_request(request).await?).await;
        running.abort();
        answer
    }
}

async fn read(answer: http::Response<hyper::body::Incoming>) -> Result<Bytes> {
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}

fn origin() -> Result<tempfile::TempDir> {
    let origin = tempfile::tempdir()?;
    std::fs::create_dir(origin.path().join("data"))?;
    std::fs::write(origin.path().join("data/k"), Oracle::of("k").body(1, SIZE))?;
    Ok(origin)
}

#[tokio::test]
async fn objects_are_read_over_tls_by_http_1_and_http_2() -> Result<()> {
    let (origin, authority) = (origin()?, Authority::new()?);
    let (larder, _) = start(&authority, origin.path()).await?;
    ensure!(larder.endpoint().starts_with("https://"), "printed {}", larder.endpoint());
    for (protocol, second) in [(b"http/1.1".as_slice(), false), (b"h2".as_slice(), true)] {
        let stream = authority.connect(larder.port(), protocol).await?;
        let (_, session) = stream.get_ref();
        ensure!(session.alpn_protocol() == Some(protocol), "{:?}", session.alpn_protocol());
        println!("{}: {:?}", String::from_utf8_lossy(protocol), session.protocol_version());
        let body = get(&larder, stream, second).await?;
        ensure!(body.len() as u64 == SIZE);
        Oracle::of("k").check(0, &body)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_plain_request_to_a_tls_port_gets_no_object() -> Result<()> {
    let (origin, authority) = (origin()?, Authority::new()?);
    let (larder, _) = start(&authority, origin.path()).await?;
    let plain = Client::new(&format!("http://127.0.0.1:{}", larder.port()), ACCESS_KEY, SECRET);
    match plain.get("data", "k").await {
        Ok(reply) => ensure!(!reply.status.is_success(), "{}", reply.status),
        Err(error) => println!("refused: {error:#}"),
    }
    Ok(())
}

#[tokio::test]
async fn a_replaced_certificate_is_used_without_a_restart() -> Result<()> {
    let (origin, authority) = (origin()?, Authority::new()?);
    let (larder, first) = start(&authority, origin.path()).await?;
    let shown = async || -> Result<Vec<u8>> {
        let stream = authority.connect(larder.port(), b"http/1.1").await?;
        let chain = stream.get_ref().1.peer_certificates().context("no certificate")?;
        Ok(chain.first().context("an empty chain")?.to_vec())
    };
    ensure!(shown().await? == first, "another certificate than the file's");
    let second = authority.issue(larder.dir())?;
    poll::until("the new certificate", Duration::from_secs(60), async || {
        Ok((shown().await? == second).then_some(()))
    })
    .await
}
