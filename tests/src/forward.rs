//! A forwarder in front of an origin that remembers each request and counts the body bytes of its
//! answer, and that can fail on demand.
//!
//! Invariant: bytes are counted when they are handed on towards the client, so what a client never
//! asked for may be counted a socket buffer too much, never too little.

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

type Upstream = hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>;

/// How the forwarder fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Not at all.
    None,
    /// As if the origin were gone: connections are closed without an answer.
    Gone,
    /// Bodies of answers break off after so many bytes.
    Cut(u64),
}

/// One request that went through.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its path and query as they were sent.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// The status that the origin answered.
    pub status: u16,
    bytes: Arc<AtomicU64>,
}

impl Seen {
    /// The bytes of the answer's body so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

struct Shared {
    upstream: String,
    client: Upstream,
    seen: Mutex<Vec<Seen>>,
    fault: Mutex<Fault>,
}

/// A running forwarder. Dropping it ends it and its connections.
pub struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts one in front of `upstream`, `HOST:PORT`.
    pub async fn start(upstream: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client =
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            client,
            seen: Mutex::default(),
            fault: Mutex::new(Fault::None),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Fails like this from now on.
    pub fn fail(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Forgets what it has seen.
    pub fn forget(&self) {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The requests so far, in the order of their answers' heads.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests so far for one object, path-style.
    #[must_use]
    pub fn seen_of(&self, bucket: &str, key: &str) -> Vec<Seen> {
        let path = format!("/{bucket}/{key}");
        let of = |seen: &Seen| seen.target.split('?').next() == Some(&path);
        self.seen().into_iter().filter(of).collect()
    }

    /// The body bytes of all answers to GETs of objects so far; listings are not objects.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        let object = |seen: &&Seen| {
            let path = seen.target.split('?').next().unwrap_or_default();
            seen.method == Method::GET && path.trim_matches('/').contains('/')
        };
        self.seen().iter().filter(object).map(Seen::bytes).sum()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the set, and the set with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if shared.fault() == Fault::Gone {
            continue;
        }
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| forward(Arc::clone(&shared), request));
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A broken connection is the client's to notice.
            let _ = serving.await;
        });
    }
}

async fn forward(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Counted>> {
    if shared.fault() == Fault::Gone {
        anyhow::bail!("the origin is gone");
    }
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let (method, headers) = (head.method.clone(), head.headers.clone());
    head.uri = format!("http://{}{target}", shared.upstream).parse()?;
    let answer = shared.client.request(Request::from_parts(head, Full::new(body))).await?;
    let bytes = Arc::new(AtomicU64::new(0));
    let status = answer.status().as_u16();
    let seen = Seen { method, target, headers, status, bytes: Arc::clone(&bytes) };
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    Ok(answer.map(|inner| Counted { inner, bytes, shared }))
}

/// A body that counts what passes and breaks off when the forwarder is to fail.
struct Counted {
    inner: Incoming,
    bytes: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, anyhow::Error>>> {
        match self.shared.fault() {
            Fault::None => {}
            Fault::Gone => return Poll::Ready(Some(Err(anyhow::anyhow!("the origin is gone")))),
            Fault::Cut(after) if self.bytes.load(Ordering::Relaxed) >= after => {
                return Poll::Ready(Some(Err(anyhow::anyhow!("cut after {after} bytes"))));
            }
            Fault::Cut(_) => {}
        }
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(piece) = frame.data_ref()
        {
            self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        polled.map_err(anyhow::Error::from)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
