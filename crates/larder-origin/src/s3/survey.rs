//! Finds out what an endpoint supports, by asking it: for `larder origin probe`.
//!
//! Not here: any use of what was found. Invariant: without leave to write, nothing is asked that
//! changes anything; with it, one object of its own is put and deleted. No key leaves through a
//! finding.

mod read;
mod write;

use super::endpoint::Endpoint;
use super::failure::element;
use super::wire::{Lost, Wire};
use super::{Addressing, Dialect, S3Config, SharedCredentials, client, prepare};
use crate::{ConfigError, OriginLimits, headers};
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use larder_model::{BucketName, ObjectKey, RawBody, RawRequest};
use tokio::time::timeout;

/// The longest answer that is read: a page of buckets.
const ANSWER_BYTES: usize = 1024 * 1024;

/// What was found out about an origin.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The bucket that was asked about, if there was one.
    pub bucket: Option<BucketName>,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// The product that the answers speak of.
    pub dialect: Dialect,
    /// The addressing to set; the configured one where it works or nothing does.
    pub addressing: Addressing,
    /// The signing region to set.
    pub region: String,
    /// Whether the origin could be asked at all: it answers, takes the keys, and shows the bucket.
    pub usable: bool,
    /// The object that was put and could not be deleted.
    pub left_behind: Option<ObjectKey>,
}

/// One question and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was asked, in a few words.
    pub subject: &'static str,
    /// The answer.
    pub answer: Answer,
    /// What the answer rests on.
    pub detail: String,
}

/// The answer to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It could not be found out; the detail says why.
    Unknown,
}

/// Asks the endpoint of a configuration, with its keys. Without a bucket, the first one that the keys
/// may list is taken. With `write`, an object called `larder-probe-…` is put into it and deleted.
///
/// # Errors
///
/// When the configuration cannot work. Whatever goes wrong at the origin is a finding.
pub async fn survey(
    config: &S3Config,
    bucket: Option<BucketName>,
    write: bool,
) -> Result<Survey, ConfigError> {
    let endpoint = Endpoint::of(config)?;
    let connector = client::connector(config, &endpoint)?;
    let (addressing, region) = (endpoint.addressing, config.region.clone());
    let mut asker = Asker {
        wire: Wire { connector, endpoint, region: region.clone() },
        keys: config.credentials.clone(),
        limits: config.limits.clone(),
        survey: Survey {
            bucket,
            findings: Vec::new(),
            dialect: config.dialect,
            addressing,
            region,
            usable: false,
            left_behind: None,
        },
    };
    if let Some(bucket) = asker.introduce().await {
        asker.survey.usable = true;
        asker.place(&bucket).await;
        asker.list(&bucket).await;
        let object = if write { asker.put(&bucket).await } else { None };
        let object = match object {
            Some(object) => Some(object),
            None => asker.find(&bucket).await,
        };
        asker.read(&bucket, object).await;
        if write {
            asker.clear(&bucket).await;
        }
    }
    asker.survey.addressing = asker.wire.endpoint.addressing;
    asker.survey.region = asker.wire.region;
    Ok(asker.survey)
}

/// Whoever asks. `wire` is set to what was found to work.
struct Asker {
    wire: Wire,
    keys: SharedCredentials,
    limits: OriginLimits,
    survey: Survey,
}

/// An answer, read to its end.
struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    /// The code of an error, or nothing.
    code: String,
}

impl Reply {
    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn header(&self, name: &str) -> Option<&str> {
        headers::text(&self.headers, name)
    }

    fn element(&self, name: &str) -> Option<String> {
        element(&self.body, name).filter(|text| !text.is_empty())
    }

    /// `403 AccessDenied`
    fn told(&self) -> String {
        format!("{} {}", self.status, self.code).trim_end().to_owned()
    }
}

/// `403 AccessDenied`, or why there was no answer.
fn told(result: &Result<Reply, String>) -> String {
    match result {
        Ok(reply) => reply.told(),
        Err(reason) => reason.clone(),
    }
}

impl Asker {
    fn note(&mut self, subject: &'static str, answer: Answer, detail: impl Into<String>) {
        self.survey.findings.push(Finding { subject, answer, detail: detail.into() });
    }

    fn note_if(&mut self, subject: &'static str, yes: bool, detail: impl Into<String>) {
        self.note(subject, if yes { Answer::Yes } else { Answer::No }, detail);
    }

    /// Asks once, and again after a failure that may pass. The request is sent as it is, whatever the
    /// dialect would leave out.
    async fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply, String> {
        let mut result = self.ask_once(ask).await;
        if matches!(&result, Err(lost) if lost.transient)
            || matches!(&result, Ok(reply) if matches!(reply.status, 429 | 500 | 502 | 503 | 504))
        {
            result = self.ask_once(ask).await;
        }
        if let Ok(reply) = &result {
            self.recognise(reply);
        }
        result.map_err(|lost| lost.reason)
    }

    async fn ask_once(&self, ask: &Ask<'_>) -> Result<Reply, Lost> {
        let failed = |reason| Lost { reason, connected: true, broken: false, transient: false };
        let (envelope, body) =
            prepare::prepare(ask.request(), Dialect::S3, &self.wire.endpoint).map_err(failed)?;
        let sent = Box::pin(self.wire.send(&envelope, &body, &self.keys, &self.limits)).await?;
        let (head, body) = sent.response.into_parts();
        let mut body = ByteStream::new(body);
        let mut bytes = Vec::new();
        while bytes.len() < ANSWER_BYTES {
            match timeout(self.limits.idle_timeout, body.next()).await {
                Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return Err(failed("its answer broke off".to_owned())),
            }
        }
        let good = head.status.is_success();
        let code = if good { None } else { element(&bytes, "Code") }.unwrap_or_default();
        // A code is a word; anything else might hold anything.
        let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let code =
            if is_word && !self.keys.occur_in(code.as_bytes()) { code } else { String::new() };
        let status = head.status.as_u16();
        Ok(Reply { status, headers: head.headers, body: Bytes::from(bytes), code })
    }

    /// The product is known by the names of its headers.
    fn recognise(&mut self, reply: &Reply) {
        let has = |prefix: &str| reply.headers.keys().any(|name| name.as_str().starts_with(prefix));
        if has("x-oss-") {
            self.survey.dialect = Dialect::Oss;
        } else if has("x-bce-") {
            self.survey.dialect = Dialect::Bos;
        }
    }
}

/// A question to the origin.
#[derive(Clone)]
struct Ask<'a> {
    method: Method,
    bucket: Option<&'a BucketName>,
    key: Option<&'a ObjectKey>,
    query: &'a [(&'static str, &'a str)],
    headers: &'a [(&'static str, &'a str)],
    body: &'a (dyn Fn() -> RawBody + Sync),
}

/// No body.
fn empty() -> RawBody {
    RawBody::Empty
}

impl<'a> Ask<'a> {
    fn of(method: Method, bucket: Option<&'a BucketName>, key: Option<&'a ObjectKey>) -> Self {
        Self { method, bucket, key, query: &[], headers: &[], body: &empty }
    }

    fn request(&self) -> RawRequest {
        let pairs = self.headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
        });
        RawRequest {
            method: self.method.clone(),
            bucket: self.bucket.cloned(),
            key: self.key.cloned(),
            query: self.query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            headers: pairs.collect(),
            body: (self.body)(),
        }
    }
}
