//! A scripted origin that takes whole requests, bodies included, and checks their signatures by
//! computing them anew from the bytes of the wire.

use larder_model::OriginName;
use larder_origin::{
    AccessKey, Addressing, Dialect, OriginLimits, S3Config, S3Origin, SharedCredentials,
};
use prometheus::Registry;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub(crate) const KEY_ID: &str = "CANARYKEYID";
pub(crate) const SECRET: &str = "CANARY-SECRET-0123456789";
pub(crate) const TOKEN: &str = "CANARY-SESSION-TOKEN-0123456789";

/// What the double does with one connection, which brings one request.
#[derive(Clone)]
pub(crate) struct Step {
    /// Whether to wait for the request's body before the answer.
    pub(crate) read: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Reads on until the client is done, then closes.
    Close,
    /// Says no more and keeps the connection.
    Hang,
}

pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Step {
    let length = if headers.contains("content-length") || headers.contains("transfer-encoding") {
        String::new()
    } else {
        format!("content-length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{length}{headers}\r\n");
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    Step { read: true, bytes, then: Then::Close }
}

pub(crate) fn error(status: u16, code: &str, more: &str) -> Step {
    answer(status, "", &format!("<Error><Code>{code}</Code><Message>told</Message>{more}</Error>"))
}

/// Takes the request and closes without a word.
pub(crate) fn silence() -> Step {
    Step { read: true, bytes: Vec::new(), then: Then::Close }
}

impl Step {
    pub(crate) fn unread(mut self) -> Self {
        self.read = false;
        self
    }

    pub(crate) fn hang(mut self) -> Self {
        self.then = Then::Hang;
        self
    }
}

/// One request as it arrived, its header names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the connection has ended, from the client's side.
    pub(crate) ended: bool,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn declared(&self) -> Option<usize> {
        self.header("content-length").map(|length| length.parse().unwrap())
    }

    /// Computes the signature from what came over the wire (S3 API, "Signature Calculations for the
    /// Authorization Header"), and holds what must be signed to be signed.
    pub(crate) fn verify(&self, region: &str) {
        let authorization = self.header("authorization").unwrap();
        let field = |name: &str| {
            let (_, rest) = authorization.split_once(name).unwrap();
            rest.split(',').next().unwrap().trim().to_owned()
        };
        let date = self.header("x-amz-date").unwrap();
        let scope = format!("{}/{region}/s3/aws4_request", &date[..8]);
        assert_eq!(field("Credential="), format!("{KEY_ID}/{scope}"));
        let signed = field("SignedHeaders=");
        let names: Vec<&str> = signed.split(';').collect();
        for (name, _) in &self.headers {
            if name == "host" || name.starts_with("x-amz-") {
                assert!(names.contains(&name.as_str()), "{name} is not signed: {signed}");
            }
        }
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut parameters: Vec<String> = query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(|part| if part.contains('=') { part.to_owned() } else { format!("{part}=") })
            .collect();
        parameters.sort();
        let headers: String = names
            .iter()
            .map(|name| {
                let values = self.headers.iter().filter(|(n, _)| n == name);
                let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
                format!("{name}:{}\n", trimmed(&values.join(",")))
            })
            .collect();
        let request = format!(
            "{}\n{path}\n{}\n{headers}\n{signed}\n{}",
            self.method,
            parameters.join("&"),
            self.header("x-amz-content-sha256").unwrap()
        );
        let text =
            format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(request)));
        let mut key = hmac(format!("AWS4{SECRET}").as_bytes(), &date.as_bytes()[..8]);
        for part in [region, "s3", "aws4_request"] {
            key = hmac(&key, part.as_bytes());
        }
        assert_eq!(field("Signature="), hex::encode(hmac(&key, text.as_bytes())));
    }
}

/// Runs of spaces count as one (Signature Version 4, "Create a canonical request").
fn trimmed(value: &str) -> String {
    let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// RFC 2104, for keys of at most a block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

/// The double, and the origin that asks it.
pub(crate) struct Double {
    pub(crate) origin: S3Origin,
    pub(crate) registry: Registry,
    seen: Arc<Mutex<BTreeMap<usize, Seen>>>,
    server: JoinHandle<()>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) fn limits() -> OriginLimits {
    OriginLimits {
        answer_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        attempts: 3,
        retry_time: Duration::from_secs(10),
        backoff: Duration::from_millis(1),
        ..OriginLimits::default()
    }
}

pub(crate) fn config(dialect: Dialect, endpoint: String, limits: OriginLimits) -> S3Config {
    S3Config {
        name: OriginName::new("double").unwrap(),
        dialect,
        endpoint,
        region: "cn-test-1".into(),
        addressing: Some(Addressing::Path),
        credentials: SharedCredentials::new(AccessKey {
            id: KEY_ID.into(),
            secret: SECRET.into(),
            session_token: Some(TOKEN.into()),
        }),
        ca: None,
        limits,
    }
}

impl Double {
    pub(crate) async fn start(steps: Vec<Step>) -> Self {
        Self::with(Dialect::S3, limits(), steps).await
    }

    pub(crate) async fn with(dialect: Dialect, limits: OriginLimits, steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(listener, config(dialect, endpoint, limits), steps)
    }

    pub(crate) fn serve(listener: TcpListener, config: S3Config, steps: Vec<Step>) -> Self {
        Self::accept(listener, None, config, steps)
    }

    pub(crate) fn serve_tls(
        listener: TcpListener,
        acceptor: TlsAcceptor,
        config: S3Config,
        steps: Vec<Step>,
    ) -> Self {
        Self::accept(listener, Some(acceptor), config, steps)
    }

    fn accept(
        listener: TcpListener,
        acceptor: Option<TlsAcceptor>,
        config: S3Config,
        steps: Vec<Step>,
    ) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let record = Arc::clone(&seen);
        let script = Arc::new(Mutex::new(VecDeque::from(steps)));
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, record) = (Arc::clone(&script), Arc::clone(&record));
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let tell = |seen| {
                        record.lock().unwrap().insert(number, seen);
                    };
                    match acceptor {
                        None => converse(stream, &script, &tell).await,
                        // A client that does not trust us hangs up.
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                converse(stream, &script, &tell).await;
                            }
                        }
                    }
                });
            }
        });
        let registry = Registry::new();
        let origin = S3Origin::new(config, &registry).unwrap();
        Self { origin, registry, seen, server }
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().values().cloned().collect()
    }

    /// The first request, once this holds for it.
    pub(crate) async fn first(&self, holds: impl Fn(&Seen) -> bool) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(seen) = self.seen().into_iter().next().filter(&holds) {
                return seen;
            }
            assert!(Instant::now() < deadline, "it does not come to that");
            tokio::task::yield_now().await;
        }
    }
}

/// Takes one request, as the script says; `tell` is told of all that has come, each time more comes.
async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: &Mutex<VecDeque<Step>>,
    tell: &impl Fn(Seen),
) {
    let Some(mut seen) = head(&mut stream).await else { return };
    tell(seen.clone());
    let step = script.lock().unwrap().pop_front();
    let step = step.unwrap_or_else(|| answer(599, "", "the script has no more steps"));
    let declared = seen.declared().unwrap_or(0);
    while step.read && seen.body.len() < declared {
        if !take(&mut stream, &mut seen, tell).await {
            return;
        }
    }
    // The client may hang up at any time; that is its right.
    let _ = stream.write_all(&step.bytes).await;
    let _ = stream.flush().await;
    if step.then == Then::Close {
        let _ = stream.shutdown().await;
    }
    while take(&mut stream, &mut seen, tell).await {}
}

/// Takes whole requests for as long as they come, and answers each: status, header lines, body.
pub(crate) async fn converse_with(
    mut stream: TcpStream,
    decide: impl Fn(&Seen) -> (u16, String, String),
) {
    while let Some(mut seen) = head(&mut stream).await {
        seen.body.resize(seen.declared().unwrap_or(0), 0);
        if stream.read_exact(&mut seen.body).await.is_err() {
            return;
        }
        let (status, headers, body) = decide(&seen);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n");
        let body = if seen.method == "HEAD" || status == 204 { "" } else { &body };
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The head of a request; `None` when there is no more.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut start = lines.next().unwrap().split(' ');
    Some(Seen {
        method: start.next().unwrap().to_owned(),
        target: start.next().unwrap().to_owned(),
        headers: lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        ..Seen::default()
    })
}

/// Takes what has come of the body; `false` at its end.
async fn take(
    stream: &mut (impl AsyncRead + Unpin),
    seen: &mut Seen,
    tell: &impl Fn(Seen),
) -> bool {
    let before = seen.body.len();
    let ended = !matches!(stream.read_buf(&mut seen.body).await, Ok(bytes) if bytes > 0);
    seen.ended = ended;
    if ended || seen.body.len() > before {
        tell(seen.clone());
    }
    !ended
}
