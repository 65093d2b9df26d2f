//! Strict doubles of Alibaba OSS and Baidu BOS behind their S3 endpoints: they refuse what the
//! products' documents say that these refuse, and answer as these answer. Behind them, moto keeps
//! the objects.
//!
//! Invariant: nothing reaches moto that a double should refuse. Where the documents are silent, a
//! double refuses: what is only guessed to be there must not be leaned on. Not here: quotas,
//! throttling, anything of the products' own (non-S3) interfaces.

pub mod digest;
mod faces;
mod relay;

pub use faces::Product;

use crate::moto::Moto;
use crate::sigv4::{self, Account};
use anyhow::Result;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The access key of every double.
pub const ACCESS_KEY: &str = "ORIGIN";
/// Its secret, which is also the one in `origin-secret` of a node of the tests.
pub const SECRET: &str = "origin-secret";

/// An answer in the place of moto's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The S3 code.
    pub code: String,
    /// For people.
    pub message: String,
    /// OSS's fine-grained error code.
    pub ec: &'static str,
    /// Further elements of the error's XML.
    pub details: Vec<(&'static str, String)>,
}

impl Refusal {
    /// An error with a status, a code and a message.
    #[must_use]
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, ec: "0002-00000001", details: Vec::new() }
    }

    /// The same with OSS's fine-grained code.
    #[must_use]
    pub fn ec(mut self, ec: &'static str) -> Self {
        self.ec = ec;
        self
    }

    /// The same with one element more.
    #[must_use]
    pub fn detail(mut self, name: &'static str, value: &str) -> Self {
        self.details.push((name, value.to_owned()));
        self
    }
}

/// One request that came, and how it was answered.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and target, with the host before it.
    pub request: String,
    /// The names of its headers.
    pub headers: Vec<String>,
    /// The status of the answer.
    pub status: u16,
    /// Why the double itself refused it.
    pub refused: Option<Refusal>,
}

/// A running double. Dropping it ends it and its connections.
pub struct Double {
    product: Product,
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    product: Product,
    account: Account,
    upstream: String,
    client: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    /// Objects' checksums by their tags.
    digests: Mutex<HashMap<String, Digests>>,
    seen: Mutex<Vec<Seen>>,
    exchanges: AtomicU64,
}

/// The checksums of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digests {
    crc64: u64,
    crc32: u32,
}

impl Digests {
    fn of(data: &[u8]) -> Self {
        Self { crc64: digest::crc64(data), crc32: digest::crc32(data) }
    }
}

/// A request as a double sees it: where it is meant to go, and its whole body.
pub(crate) struct Asked {
    head: Parts,
    bucket: Option<String>,
    /// As it stands in the request, escaped.
    key: Option<String>,
    query: Vec<(String, String)>,
    /// Without the framing of aws-chunked.
    body: Bytes,
}

impl Asked {
    fn has(&self, parameter: &str) -> bool {
        self.query.iter().any(|(name, _)| name == parameter)
    }

    /// Whether it is for the bytes or the state of an object.
    fn reads_object(&self) -> bool {
        let sub = ["acl", "uploadId", "uploads"].iter().any(|name| self.has(name));
        self.key.is_some() && !sub && matches!(self.head.method, Method::GET | Method::HEAD)
    }
}

impl Double {
    /// Starts a double of a product in front of a moto.
    pub async fn start(product: Product, moto: &Moto) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let shared = Arc::new(Shared {
            product,
            account: Account {
                access_key: ACCESS_KEY.to_owned(),
                secret: SECRET.to_owned(),
                region: product.region().to_owned(),
            },
            upstream: moto.address().to_owned(),
            client: hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .build(connector),
            digests: Mutex::default(),
            seen: Mutex::default(),
            exchanges: AtomicU64::new(1),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { product, port, shared, task })
    }

    /// `HOST:PORT`; the host is a name under `localhost`, since OSS takes no request by address.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}:{}", self.product.domain(), self.port)
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.host())
    }

    /// The address that its name means.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The section of the configuration for an origin that is this double.
    #[must_use]
    pub fn origin(&self, name: &str) -> String {
        format!(
            "[origin.{name}]\nkind = \"{}\"\nendpoint = \"{}\"\nregion = \"{}\"\n\
             access_key_id = \"{ACCESS_KEY}\"\nsecret_access_key = \"file:origin-secret\"\n",
            self.product.kind(),
            self.endpoint(),
            self.product.region()
        )
    }

    /// Every request so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what it has seen.
    pub fn forget(&self) {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the set, and the set with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| serve(Arc::clone(&shared), request));
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A broken connection is the client's to notice.
            let _ = serving.await;
        });
    }
}

/// An answer to every request whose body came whole; the connection breaks for others, and nothing
/// of them reaches moto.
async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let host = head.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let told = format!("{} {host}{}", head.method, head.uri);
    let headers = head.headers.keys().map(ToString::to_string).collect();
    let silent = head.method == Method::HEAD;
    let body = body.collect().await?.to_bytes();
    let exchange = shared.exchanges.fetch_add(1, Ordering::Relaxed);
    let (mut answer, refused) = match judge(&shared, head, body) {
        Ok(asked) => (relay::relay(&shared, asked).await?, None),
        Err(refusal) => (error(&shared, &refusal)?, Some(refusal)),
    };
    shared.product.sign_off(answer.headers_mut(), exchange)?;
    let status = answer.status().as_u16();
    let seen = Seen { request: told, headers, status, refused };
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    if silent {
        *answer.body_mut() = Full::default();
    }
    Ok(answer)
}

/// What the request is, unless the product refuses it.
fn judge(shared: &Shared, head: Parts, body: Bytes) -> Result<Asked, Refusal> {
    let (bucket, key) = shared.product.locate(&head)?;
    let proof = sigv4::verify(&head, &shared.account)?;
    let body = shared.product.open(&head.headers, &proof, body)?;
    let query = sigv4::decoded(head.uri.query().unwrap_or_default());
    let asked = Asked { head, bucket, key, query, body };
    shared.product.allow(&asked)?;
    Ok(asked)
}

fn error(shared: &Shared, refusal: &Refusal) -> Result<Response<Full<Bytes>>> {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message>",
        refusal.code,
        plain(&refusal.message)
    );
    for (name, value) in &refusal.details {
        xml += &format!("<{name}>{}</{name}>", plain(value));
    }
    xml += "</Error>";
    let xml = shared.product.finish_error(xml, refusal.ec);
    let answer = Response::builder()
        .status(StatusCode::from_u16(refusal.status)?)
        .header("content-type", "application/xml")
        .header("content-length", xml.len());
    Ok(answer.body(Full::new(xml.into()))?)
}
