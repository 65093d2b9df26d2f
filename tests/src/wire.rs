//! Requests whose every byte a test decides, each over a connection of its own: either style of
//! addressing, either place of a signature, every coding of a body. It neither normalises nor
//! retries nor follows, so what it sees is what was answered to what was sent.
//!
//! Heads are signed by `aws-sigv4`; the chunks of bodies by [`crate::sigv4`].

use crate::client::Reply;
use crate::double::digest;
use crate::sigv4::{
    self, Account, CHUNKED, CHUNKED_TRAILER, Chain, UNSIGNED, UNSIGNED_TRAILER, escaped,
    escaped_path,
};
use crate::tools::Style;
use anyhow::{Context, Result};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest that an answer may take, body included.
const LIMIT: Duration = Duration::from_secs(120);

/// Where requests go, and who sends them.
#[derive(Clone, Debug)]
pub struct Place {
    /// `HOST:PORT` to connect to.
    pub address: String,
    /// The `Host` header, without the bucket.
    pub host: String,
    /// Where the bucket goes.
    pub style: Style,
    /// Who signs, and for which region.
    pub account: Account,
}

/// How a request shows who sent it, and how its body is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coding {
    /// In the header, over the body too.
    #[default]
    Signed,
    /// In the header, with `UNSIGNED-PAYLOAD`.
    Unsigned,
    /// In the query, for so many seconds.
    Presigned(u64),
    /// Signed chunks of so many bytes.
    Chunked(usize),
    /// Signed chunks and a signed trailer with a CRC-32.
    ChunkedTrailer(usize),
    /// Chunks and a trailer with a CRC-32, as stock clients send since 2025.
    UnsignedTrailer(usize),
    /// Not at all.
    Anonymous,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Its method.
    pub method: Method,
    /// Its bucket; empty for the service.
    pub bucket: String,
    /// Its key, plain; `None` for the bucket.
    pub key: Option<String>,
    /// The parameters, plain; one without a value goes out as its name alone.
    pub query: Vec<(String, Option<String>)>,
    /// Its headers, beside those of the signature.
    pub headers: Vec<(String, String)>,
    /// Its body, before the coding.
    pub body: Bytes,
    /// How it is signed and coded.
    pub coding: Coding,
}

impl Wire {
    /// A request for an object.
    #[must_use]
    pub fn object(method: Method, bucket: &str, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::bucket(method, bucket) }
    }

    /// A request for a bucket.
    #[must_use]
    pub fn bucket(method: Method, bucket: &str) -> Self {
        Self {
            method,
            bucket: bucket.to_owned(),
            key: None,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            coding: Coding::Signed,
        }
    }

    /// With a parameter more.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// With a sub-resource.
    #[must_use]
    pub fn resource(mut self, name: &str) -> Self {
        self.query.push((name.to_owned(), None));
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

    /// In another coding.
    #[must_use]
    pub fn coding(mut self, coding: Coding) -> Self {
        self.coding = coding;
        self
    }

    /// Host and target at a place.
    fn aim(&self, place: &Place) -> (String, String) {
        let key = self.key.as_deref().map(escaped_path);
        let (host, mut target) = match place.style {
            _ if self.bucket.is_empty() => (place.host.clone(), "/".to_owned()),
            Style::Virtual => {
                let host = format!("{}.{}", self.bucket, place.host);
                (host, format!("/{}", key.unwrap_or_default()))
            }
            Style::Path => {
                let key = key.map(|key| format!("/{key}")).unwrap_or_default();
                (place.host.clone(), format!("/{}{key}", self.bucket))
            }
        };
        for (index, (name, value)) in self.query.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target += &escaped(name);
            if let Some(value) = value {
                target += &format!("={}", escaped(value));
            }
        }
        (host, target)
    }
}

impl Place {
    /// A server in `us-east-1`, path-style, by its URL.
    #[must_use]
    pub fn new(endpoint: &str, access_key: &str, secret: &str) -> Self {
        let address = endpoint.rsplit('/').next().unwrap_or_default().to_owned();
        let account = Account {
            access_key: access_key.to_owned(),
            secret: secret.to_owned(),
            region: "us-east-1".to_owned(),
        };
        Self { host: address.clone(), address, style: Style::Path, account }
    }

    /// Signs, sends, and reads the answer to its end.
    pub async fn send(&self, wire: &Wire) -> Result<Reply> {
        let told = || format!("{} {:?} at {}", wire.method, wire.aim(self), self.address);
        let request = self.request(wire).with_context(told)?;
        self.exchange(request).await.with_context(told)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply> {
        let whole = async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let running = tokio::spawn(connection);
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            drop(sender);
            running.abort();
            anyhow::Ok(Reply { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(LIMIT, whole).await.with_context(|| format!("not in {LIMIT:?}"))?
    }

    /// The request as it goes over the wire.
    fn request(&self, wire: &Wire) -> Result<Request<Full<Bytes>>> {
        let (host, target) = wire.aim(self);
        let uri = format!("http://{host}{target}");
        let mut headers: Vec<(String, String)> = wire.headers.clone();
        let mut put = |name: &str, value: String| headers.push((name.to_owned(), value));
        let payload = match wire.coding {
            Coding::Chunked(_) => Some(CHUNKED),
            Coding::ChunkedTrailer(_) => Some(CHUNKED_TRAILER),
            Coding::UnsignedTrailer(_) => Some(UNSIGNED_TRAILER),
            Coding::Unsigned | Coding::Presigned(_) => Some(UNSIGNED),
            Coding::Signed | Coding::Anonymous => None,
        };
        if payload.is_some_and(|payload| payload.starts_with("STREAMING")) {
            put("x-amz-decoded-content-length", wire.body.len().to_string());
            let own = wire.headers.iter().find(|(name, _)| name == "content-encoding");
            if own.is_none() {
                put("content-encoding", "aws-chunked".to_owned());
            }
        }
        if payload.is_some_and(|payload| payload.ends_with("TRAILER")) {
            put("x-amz-trailer", "x-amz-checksum-crc32".to_owned());
        }
        let mut request = Request::builder().method(&wire.method).uri(&uri).body(())?;
        for (name, value) in &headers {
            let name: http::HeaderName = name.parse()?;
            request.headers_mut().append(name, value.parse()?);
        }
        let mut seed = String::new();
        if wire.coding != Coding::Anonymous {
            let body = payload.map_or(SignableBody::Bytes(&wire.body), |payload| {
                SignableBody::Precomputed(payload.to_owned())
            });
            let named = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let signable = SignableRequest::new(wire.method.as_str(), uri.as_str(), named, body)?;
            seed = self.sign(signable, wire.coding, &mut request)?;
        }
        let stamp = text(request.headers(), "x-amz-date");
        let body = self.code(wire, &stamp, &seed);
        let (mut head, ()) = request.into_parts();
        // What was signed was absolute; what is sent is the target alone.
        head.uri = head.uri.path_and_query().map_or("/", |target| target.as_str()).parse()?;
        head.headers.insert("host", host.parse()?);
        if body.is_empty() && [Method::PUT, Method::POST].contains(&head.method) {
            // hyper tells the length of a body, not that there is none; S3 wants to be told.
            head.headers.insert("content-length", http::HeaderValue::from(0));
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }

    /// Puts the signature into a request, and tells it.
    fn sign(
        &self,
        signable: SignableRequest<'_>,
        coding: Coding,
        request: &mut Request<()>,
    ) -> Result<String> {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        if let Coding::Presigned(seconds) = coding {
            settings.signature_location = SignatureLocation::QueryParams;
            settings.expires_in = Some(Duration::from_secs(seconds));
            settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        }
        let account = &self.account;
        let identity =
            Credentials::new(&account.access_key, &account.secret, None, None, "larder-tests")
                .into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&account.region)
            .name("s3")
            .time(sigv4::now())
            .settings(settings)
            .build()?
            .into();
        let (instructions, signature) = sign(signable, &parameters)?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(signature)
    }

    /// The body in its coding.
    fn code(&self, wire: &Wire, stamp: &str, seed: &str) -> Bytes {
        let body = &wire.body;
        let (size, mut chain) = match wire.coding {
            Coding::Chunked(size) | Coding::ChunkedTrailer(size) => {
                (size, Some(Chain::begin(&self.account, stamp, seed)))
            }
            Coding::UnsignedTrailer(size) => (size, None),
            _ => return body.clone(),
        };
        let mut coded = Vec::new();
        for chunk in body.chunks(size).chain([&[][..]]) {
            let signature = chain.as_mut().map(|chain| chain.chunk(chunk));
            let extension =
                signature.map(|it| format!(";chunk-signature={it}")).unwrap_or_default();
            coded.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            if !chunk.is_empty() {
                coded.extend_from_slice(b"\r\n");
            }
        }
        if let Coding::Chunked(_) = wire.coding {
            coded.extend_from_slice(b"\r\n");
            return coded.into();
        }
        let sum = digest::base64(&digest::crc32(body).to_be_bytes());
        let trailer = format!("x-amz-checksum-crc32:{sum}");
        coded.extend_from_slice(format!("{trailer}\r\n").as_bytes());
        if let Some(chain) = &mut chain {
            let signature = chain.trailer(&format!("{trailer}\n"));
            coded.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
        }
        coded.extend_from_slice(b"\r\n");
        coded.into()
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
