//! A small S3 client whose requests a test can shape header by header: signed by `aws-sigv4`, sent
//! by hyper, once. It retries nothing and follows nothing, so what it sees is what was answered.

use anyhow::{Context, Result, ensure};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// The longest that an answer may take, body included: a test must not wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

const REGION: &str = "us-east-1";

/// What a key's bytes are escaped to in a path: everything but the unreserved ones and the slash.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The same for a value in a query.
const QUERY: &AsciiSet = &PATH.add(b'/');

/// A client of one endpoint with one key pair. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    endpoint: String,
    credentials: Credentials,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

/// An answer with its whole body.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// A header as text; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Itself, if the status is the one expected.
    pub fn expect(self, status: u16) -> Result<Self> {
        let got = self.status.as_u16();
        ensure!(got == status, "expected {status}, got {got}: {:?} {}", self.headers, self.text());
        Ok(self)
    }
}

/// A request that is not signed yet.
#[derive(Clone, Debug)]
pub struct Ask {
    method: Method,
    /// Path and query, escaped.
    target: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Ask {
    /// A request for an object.
    #[must_use]
    pub fn object(method: Method, bucket: &str, key: &str) -> Self {
        Self::target(method, &format!("/{bucket}/{}", utf8_percent_encode(key, PATH)))
    }

    /// A request for any path and query, escaped already.
    #[must_use]
    pub fn target(method: Method, target: &str) -> Self {
        Self { method, target: target.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    /// With a query parameter more.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target += &format!("{name}={}", utf8_percent_encode(value, QUERY));
        self
    }

    /// With a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// A signed request, and its signature.
pub struct Signed {
    /// The request.
    pub request: Request<Full<Bytes>>,
    /// The signature in its `authorization` header.
    pub signature: String,
}

impl Client {
    /// A client of the S3 at `endpoint`, a URL without a path.
    #[must_use]
    pub fn new(endpoint: &str, access_key: &str, secret: &str) -> Self {
        let credentials = Credentials::new(access_key, secret, None, None, "larder-tests");
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http =
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { endpoint: endpoint.to_owned(), credentials, http }
    }

    /// The same client with a session token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        let (id, secret) = (self.credentials.access_key_id(), self.credentials.secret_access_key());
        self.credentials = Credentials::new(id, secret, Some(token.into()), None, "larder-tests");
        self
    }

    /// Signs a request.
    pub fn sign(&self, ask: &Ask) -> Result<Signed> {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = self.credentials.clone().into();
        #[expect(clippy::disallowed_methods, reason = "a signature carries the wall-clock time")]
        let now = std::time::SystemTime::now();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("s3")
            .time(now)
            .settings(settings)
            .build()?
            .into();
        let uri = format!("{}{}", self.endpoint, ask.target);
        let headers = ask.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let body = SignableBody::Bytes(&ask.body);
        let signable = SignableRequest::new(ask.method.as_str(), uri.as_str(), headers, body)?;
        let (instructions, signature) = sign(signable, &parameters)?.into_parts();
        let mut request = self.unsigned(ask)?;
        instructions.apply_to_request_http1x(&mut request);
        Ok(Signed { request, signature })
    }

    /// A request without a signature.
    pub fn unsigned(&self, ask: &Ask) -> Result<Request<Full<Bytes>>> {
        let uri = format!("{}{}", self.endpoint, ask.target);
        let mut request = Request::builder().method(&ask.method).uri(&uri);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(ask.body.clone())).with_context(|| format!("bad request for {uri}"))
    }

    /// Signs and sends a request; the body is still to be read.
    pub async fn open(&self, ask: &Ask) -> Result<Response<Incoming>> {
        let request = self.sign(ask)?.request;
        let answer = tokio::time::timeout(LIMIT, self.http.request(request)).await;
        let told = || format!("{} {}{}", ask.method, self.endpoint, ask.target);
        answer
            .with_context(|| format!("{}: no answer within {LIMIT:?}", told()))?
            .with_context(told)
    }

    /// Signs and sends a request and reads the answer.
    pub async fn send(&self, ask: &Ask) -> Result<Reply> {
        self.send_as_is(self.sign(ask)?.request).await
    }

    /// Sends a request as it is and reads the answer.
    pub async fn send_as_is(&self, request: Request<Full<Bytes>>) -> Result<Reply> {
        let told = format!("{} {}", request.method(), request.uri());
        let whole = async {
            let (head, body) = self.http.request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Reply { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::time::timeout(LIMIT, whole).await;
        answer.with_context(|| format!("{told}: no answer within {LIMIT:?}"))?.context(told)
    }

    /// GET of an object, whatever the answer.
    pub async fn get(&self, bucket: &str, key: &str) -> Result<Reply> {
        self.send(&Ask::object(Method::GET, bucket, key)).await
    }

    /// HEAD of an object, whatever the answer.
    pub async fn head(&self, bucket: &str, key: &str) -> Result<Reply> {
        self.send(&Ask::object(Method::HEAD, bucket, key)).await
    }

    /// Makes a bucket.
    pub async fn make_bucket(&self, bucket: &str) -> Result<()> {
        let ask = Ask::target(Method::PUT, &format!("/{bucket}"));
        self.send(&ask).await?.expect(200).map(drop)
    }

    /// Writes an object.
    pub async fn put(&self, bucket: &str, key: &str, body: impl Into<Bytes>) -> Result<Reply> {
        self.send(&Ask::object(Method::PUT, bucket, key).body(body)).await?.expect(200)
    }
}
