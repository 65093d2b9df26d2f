//! A node of the gateway on a port of the kernel's choice, and a client that sends exactly what it
//! is told.

use super::chunks::sha256_hex;
use super::double::Double;
use super::sign::{EMPTY, Signable, Signing, encode_query};
use arc_swap::ArcSwap;
use larder_gateway::{Drained, Gateway, GatewayConfig, KeyRing, Listeners, Rules, Tls, bind_tcp};
use larder_model::{Access, BucketRule, Clock, Dataset, DatasetName, Grants, Namespace, Timestamp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const KEY: &str = "TRAINER";
pub(crate) const SECRET: &str = "canary-secret-of-the-trainer";

/// Everything that waits for the network gives up after this.
const PATIENCE: Duration = Duration::from_secs(20);

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp(UNIX_EPOCH.elapsed().unwrap().as_millis() as u64)
    }
}

pub(crate) fn now() -> i64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs() as i64
}

pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) double: Arc<Double>,
    pub(crate) rules: Arc<ArcSwap<Rules>>,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) registry: prometheus::Registry,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) served: JoinHandle<Drained>,
}

/// What a node is to be like.
pub(crate) struct Setup {
    pub(crate) double: Double,
    pub(crate) rules: Rules,
    pub(crate) anonymous: bool,
    pub(crate) forms: bool,
    pub(crate) connections: usize,
    pub(crate) grace: Duration,
    pub(crate) tls: Option<Tls>,
}

impl Default for Setup {
    fn default() -> Self {
        let mut double = Double::default();
        double.put("data", "k", &b"0123456789"[..]);
        double.put("data", "secret", &b"SMUGGLED"[..]);
        double.put("data", "empty", &b""[..]);
        for key in ["streamed", "cut", "slow"] {
            double.put("data", key, &b"0123456789"[..]);
        }
        double.put("data", "a b+c/\u{fc}//..", &b"odd"[..]);
        double.put("train-data", "imagenet/x", &b"x"[..]);
        let rules = rules(
            &[("data", "data", "", None), ("every", "*", "", None)],
            &[(KEY, "data"), (KEY, "every")],
        );
        let grace = Duration::from_secs(10);
        Self { double, rules, anonymous: false, forms: false, connections: 100, grace, tls: None }
    }
}

/// Datasets as (name, bucket, prefix, alias) and grants as (access key, dataset), for reading.
pub(crate) fn rules(
    datasets: &[(&str, &str, &str, Option<&str>)],
    grants: &[(&str, &str)],
) -> Rules {
    let grants: Vec<_> = grants.iter().map(|(key, name)| (*key, *name, Access::Read)).collect();
    access_rules(datasets, &grants)
}

/// Datasets that can all be written, and grants that say what they are for.
pub(crate) fn access_rules(
    datasets: &[(&str, &str, &str, Option<&str>)],
    grants: &[(&str, &str, Access)],
) -> Rules {
    let datasets = datasets.iter().map(|(name, bucket, prefix, alias)| {
        let plain = if *bucket == "*" { "any" } else { bucket };
        let mut dataset = Dataset::example(name, plain, prefix);
        if *bucket == "*" {
            dataset.bucket = BucketRule::Every;
        }
        dataset.alias = alias.map(|alias| larder_model::BucketName::new(alias).unwrap());
        dataset.access = Access::ReadWrite;
        Arc::new(dataset)
    });
    let mut granted = Grants::new();
    for (key, dataset, access) in grants {
        granted.allow(key, DatasetName::new(dataset).unwrap(), *access);
    }
    Rules { namespace: Namespace::new(datasets).unwrap(), grants: granted }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    /// A node whose one client may read and write everything.
    pub(crate) async fn writable() -> Self {
        let rules = access_rules(
            &[("data", "data", "", None), ("every", "*", "", None)],
            &[(KEY, "data", Access::ReadWrite), (KEY, "every", Access::ReadWrite)],
        );
        Self::with(Setup { rules, ..Setup::default() }).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let double = Arc::new(setup.double);
        let mut rules = setup.rules;
        if setup.anonymous {
            rules.grants.allow_anonymous(Access::Read);
        }
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        let pair = |key: &str, secret: &str| (key.to_owned(), secret.to_owned());
        let keys = Arc::new(KeyRing::new([pair(KEY, SECRET), pair("OTHER", "other-secret")]));
        let registry = prometheus::Registry::new();
        let config = GatewayConfig {
            regions: vec!["us-east-1".to_owned(), "cn-hangzhou".to_owned()],
            domains: vec!["s3.local".to_owned()],
            anonymous: setup.anonymous,
            forms: setup.forms,
            connections: setup.connections,
            grace: setup.grace,
            clock: Arc::new(Wall),
            registry: registry.clone(),
        };
        let reads = double.clone() as Arc<dyn larder_gateway::Reads>;
        let gateway = Gateway::new(config, reads, rules.clone(), keys.clone()).unwrap();
        let (listener, address) = bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let listeners = Listeners { tcp: vec![listener], unix: None, tls: setup.tls };
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            gateway.serve(listeners, stopped).await
        });
        Self { address, double, rules, keys, registry, stop: Some(stop), served }
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> Ask {
        Ask::new(self.address, method, path)
    }

    pub(crate) fn get(&self, path: &str) -> Ask {
        self.ask("GET", path)
    }

    /// Sends raw bytes; what comes back until the connection is closed, or until nothing has come
    /// for a while.
    pub(crate) async fn raw(&self, bytes: &[u8], quiet: Duration) -> (Vec<u8>, bool) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses early may close before everything is sent.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            match tokio::time::timeout(quiet, stream.read(&mut buffer)).await {
                Ok(Ok(0) | Err(_)) => return (answer, true),
                Ok(Ok(n)) => answer.extend_from_slice(&buffer[..n]),
                Err(_) => return (answer, false),
            }
        }
    }
}

pub(crate) fn signing() -> Signing {
    Signing {
        access_key: KEY.to_owned(),
        secret: SECRET.to_owned(),
        region: "us-east-1".to_owned(),
        service: "s3".to_owned(),
        terminator: "aws4_request".to_owned(),
        algorithm: "AWS4-HMAC-SHA256".to_owned(),
        at: now(),
        scope_date: None,
        signed: None,
        payload: EMPTY.to_owned(),
        expires: "600".to_owned(),
    }
}

/// How a request is signed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Header,
    Presigned,
    None,
}

/// A request under construction. `path` is encoded, `query` is not.
pub(crate) struct Ask {
    address: SocketAddr,
    method: String,
    path: String,
    host: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    /// Added behind the signature.
    late_headers: Vec<(String, String)>,
    /// Appended to the encoded query behind the signature.
    late_query: String,
    /// Replaces the path behind the signature.
    late_path: Option<String>,
    form: Form,
    pub(crate) signing: Signing,
    body: Vec<u8>,
}

impl Ask {
    fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        });
        Self {
            address,
            method: method.to_owned(),
            path: path.to_owned(),
            host: address.to_string(),
            query: pairs.collect(),
            headers: Vec::new(),
            late_headers: Vec::new(),
            late_query: String::new(),
            late_path: None,
            form: Form::Header,
            signing: signing(),
            body: Vec::new(),
        }
    }

    /// A body as it is on the wire; its length is told, its hash is not.
    pub(crate) fn wire(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let len = self.body.len().to_string();
        self.late_headers.retain(|(name, _)| name != "content-length");
        self.late_header("content-length", &len)
    }

    /// A body, with its hash signed.
    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let payload = sha256_hex(&body);
        self.signed(|s| s.payload = payload).wire(body)
    }

    /// A body without a hash.
    pub(crate) fn unsigned_body(self, body: impl Into<Vec<u8>>) -> Self {
        self.signed(|s| s.payload = "UNSIGNED-PAYLOAD".to_owned()).wire(body)
    }

    /// The signature of the Authorization header.
    pub(crate) fn signature(&self) -> String {
        let value = self.signing.authorization(&self.signable());
        value.rsplit('=').next().unwrap().to_owned()
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn host(mut self, host: &str) -> Self {
        self.host = host.to_owned();
        self
    }

    pub(crate) fn late_header(mut self, name: &str, value: &str) -> Self {
        self.late_headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn late_query(mut self, text: &str) -> Self {
        self.late_query = text.to_owned();
        self
    }

    pub(crate) fn late_path(mut self, path: &str) -> Self {
        self.late_path = Some(path.to_owned());
        self
    }

    pub(crate) fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    pub(crate) fn signed(mut self, change: impl FnOnce(&mut Signing)) -> Self {
        change(&mut self.signing);
        self
    }

    fn signable(&self) -> Signable<'_> {
        let mut headers = vec![("host".to_owned(), self.host.clone())];
        headers.extend(self.headers.clone());
        if self.form == Form::Header {
            if !self.signing.payload.is_empty() {
                headers.push(("x-amz-content-sha256".to_owned(), self.signing.payload.clone()));
            }
            headers.push(("x-amz-date".to_owned(), self.signing.amz_date()));
        }
        Signable { method: &self.method, path: &self.path, query: self.query.clone(), headers }
    }

    /// The request's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The request's bytes without its body.
    pub(crate) fn head(&self) -> Vec<u8> {
        let signable = self.signable();
        let (method, path) = (&*self.method, &*self.path);
        let mut query = match self.form {
            Form::Presigned => self.signing.presign(&signable),
            Form::Header | Form::None => encode_query(&self.query),
        };
        query += &self.late_query;
        let query = query.trim_start_matches(['?', '&']);
        let path = self.late_path.as_deref().unwrap_or(path);
        let question = if query.is_empty() { "" } else { "?" };
        let mut text = format!("{method} {path}{question}{query} HTTP/1.1\r\n");
        for (name, value) in signable.headers.iter().chain(&self.late_headers) {
            text += &format!("{name}: {value}\r\n");
        }
        if self.form == Form::Header {
            text += &format!("authorization: {}\r\n", self.signing.authorization(&signable));
        }
        text += "connection: close\r\n\r\n";
        text.into_bytes()
    }

    /// The answer.
    pub(crate) async fn send(&self) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses early may stop to listen before everything is sent.
        let _ = stream.write_all(&self.to_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        // A reset behind the answer is as good as an end.
        let _ = read.expect("the gateway answers in time");
        Reply::parse(&answer)
    }
}

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Self { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element of this name.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        self.elements(name).into_iter().next()
    }

    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let text = self.text();
        let (start, end) = (format!("<{name}>"), format!("</{name}>"));
        let parts = text.split(&start).skip(1);
        parts.filter_map(|part| part.split_once(&end).map(|(text, _)| text.to_owned())).collect()
    }

    /// Asserts status and S3 code, and that the id is in the header and in the document.
    pub(crate) fn expect(&self, status: u16, code: &str, what: &str) {
        let found = (self.status, self.element("Code").unwrap_or_default());
        assert_eq!(found, (status, code.to_owned()), "{what}: {}", self.text());
        let id = self.header("x-amz-request-id").unwrap_or_default();
        assert_eq!(id.len(), 16, "{what}");
        if !code.is_empty() {
            assert_eq!(self.element("RequestId").as_deref(), Some(id), "{what}");
            assert_eq!(self.header("content-type"), Some("application/xml"), "{what}");
        }
    }
}
