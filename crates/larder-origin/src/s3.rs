//! An origin that speaks S3: AWS, and Alibaba OSS and Baidu BOS through their S3 endpoints.
//!
//! This is the only module that uses the AWS SDK. The SDK's typed outputs are not trusted with the
//! answer: headers are taken as they came, lengths, ranges and tags are checked here.

mod answer;
mod body;
mod chain;
mod chunked;
mod client;
mod crc;
mod credentials;
mod endpoint;
mod exchange;
mod failure;
mod list;
mod prepare;
mod probe;
mod raw;
mod resolve;
mod sign;
mod survey;
mod upload;
mod wire;

pub use client::check_ca;
pub use credentials::{AccessKey, SharedCredentials};
pub use survey::{Answer, Finding, Survey, survey};

use crate::limits::Gate;
use crate::metrics::{Operation, Requests};
use crate::{ConfigError, OriginLimits, headers};
use answer::Wanted;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use body::Transfer;
use endpoint::Endpoint;
use exchange::{Exchange, Failed};
use failure::Asked;
use futures_util::StreamExt as _;
use http::HeaderMap;
use larder_model::{
    BucketEntry, BucketName, FetchRequest, Fetched, HeadRequest, ListPage, ListRequest, ObjectMeta,
    ObjectName, Origin, OriginError, OriginName, RawAnswer, RawRequest,
};
use probe::Head;
use std::sync::Arc;
use wire::Wire;

/// Pages of buckets that are followed at most: a million buckets.
const BUCKET_PAGES: usize = 100;

/// Which product's S3 it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Amazon S3 and what follows it closely.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
    /// Baidu BOS.
    Bos,
}

impl Dialect {
    /// OSS takes nothing but virtual-hosted-style requests (`SecondLevelDomainForbidden`); path
    /// style works everywhere else, also where buckets have no DNS names.
    #[must_use]
    pub fn default_addressing(self) -> Addressing {
        match self {
            Self::S3 | Self::Bos => Addressing::Path,
            Self::Oss => Addressing::Virtual,
        }
    }

    fn has_checksum_mode(self) -> bool {
        self == Self::S3
    }
}

/// Where the bucket's name goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// `https://endpoint/bucket/key`
    Path,
    /// `https://bucket.endpoint/key`
    Virtual,
}

/// How to reach an origin. `Debug` shows no key.
#[derive(Clone, Debug)]
pub struct S3Config {
    /// The origin's name in the configuration.
    pub name: OriginName,
    /// Which product's S3.
    pub dialect: Dialect,
    /// `http://` or `https://`, host and port.
    pub endpoint: String,
    /// The region in the signature's scope.
    pub region: String,
    /// The dialect's default without.
    pub addressing: Option<Addressing>,
    /// The keys; replaceable.
    pub credentials: SharedCredentials,
    /// Certificates, as PEM, that are trusted in the place of the system's.
    pub ca: Option<Vec<u8>>,
    /// How much, how long, how often.
    pub limits: OriginLimits,
}

/// An object store that speaks S3. One client, one connection pool, one set of limits.
#[derive(Clone, Debug)]
pub struct S3Origin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    dialect: Dialect,
    exchange: Exchange,
    wire: Wire,
}

impl S3Origin {
    /// Sets up the client. Opens no connection: an origin that is down is found out by requests.
    pub fn new(config: S3Config, registry: &prometheus::Registry) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::of(&config)?;
        let connector = client::connector(&config, &endpoint)?;
        let client = client::build(&config, endpoint.addressing, connector.clone());
        let exchange = Exchange {
            gate: Gate::new(&config.name, &config.limits)?,
            requests: Requests::register(&config.name, registry)?,
            origin: config.name,
            limits: config.limits,
            keys: config.credentials,
        };
        let wire = Wire { connector, endpoint, region: config.region };
        Ok(Self(Arc::new(Inner { client, dialect: config.dialect, exchange, wire })))
    }
}

impl Inner {
    /// A GET without its ticket: the caller holds one as long as the body lives.
    async fn get(&self, name: &ObjectName, wanted: &Wanted) -> Result<(ByteStream, Head), Failed> {
        let if_match = wanted.if_match.as_ref().filter(|tag| answer::is_strong(tag));
        let checksums = wanted.checksums && self.dialect.has_checksum_mode();
        let send = |probe| {
            self.client
                .get_object()
                .bucket(name.bucket.as_str())
                .key(name.key.as_str())
                .set_version_id(name.version_id.as_ref().map(ToString::to_string))
                .set_range(wanted.range.map(|range| range.to_header()))
                .set_if_match(if_match.map(ToString::to_string))
                .set_part_number(part_number(wanted.part_number))
                .customize()
                .interceptor(probe)
                .send()
        };
        let (output, head) = self.exchange.run(Operation::Get, checksums, send).await?;
        Ok((output.body, head))
    }

    fn error(&self, what: &str, asked: Asked, (failure, attempts): Failed) -> OriginError {
        failure.into_error(&self.exchange.origin, what, asked, attempts)
    }
}

fn part_number(number: Option<u32>) -> Option<i32> {
    number.map(|number| i32::try_from(number).unwrap_or(i32::MAX))
}

#[async_trait::async_trait]
impl Origin for S3Origin {
    fn name(&self) -> &OriginName {
        &self.0.exchange.origin
    }

    async fn head(&self, request: HeadRequest) -> Result<ObjectMeta, OriginError> {
        let inner = &self.0;
        let name = &request.name;
        let checksums = request.checksums && inner.dialect.has_checksum_mode();
        let send = |probe| {
            inner
                .client
                .head_object()
                .bucket(name.bucket.as_str())
                .key(name.key.as_str())
                .set_version_id(name.version_id.as_ref().map(ToString::to_string))
                .set_part_number(part_number(request.part_number))
                .customize()
                .interceptor(probe)
                .send()
        };
        let what = || format!("HEAD of {name}");
        let _ticket = inner.exchange.gate.enter().await?;
        let (_, head) = inner
            .exchange
            .run(Operation::Head, checksums, send)
            .await
            .map_err(|failed| inner.error(&what(), Asked::default(), failed))?;
        let size = answer::size(&head)
            .map_err(|failure| inner.error(&what(), Asked::default(), (failure, 1)))?;
        Ok(answer::meta(&head, size))
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Fetched, OriginError> {
        let inner = &self.0;
        let FetchRequest { name, range, if_match, part_number, checksums } = request;
        let asked = Asked { if_match: if_match.is_some(), range: range.is_some() };
        let wanted = Wanted { range, if_match, part_number, checksums };
        let failed = |failed| inner.error(&format!("GET of {name}"), asked, failed);
        let ticket = inner.exchange.gate.enter().await?;
        let (body, head) = inner.get(&name, &wanted).await.map_err(failed)?;
        let found = answer::examine(&head, &wanted).map_err(|failure| failed((failure, 1)))?;
        let transfer = Transfer {
            origin: Arc::clone(inner),
            etag: found.meta.etag.clone(),
            size: found.meta.size,
            body,
            next: found.range.map_or(0, |range| range.start()),
            end: found.range.map_or(0, |range| range.end()),
            overlong: found.overlong,
            check: crc::Check::of(&found.meta, found.range),
            _ticket: ticket,
            name,
        };
        Ok(Fetched { meta: found.meta, range: found.range, body: transfer.into_stream().boxed() })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, OriginError> {
        self.0.list(request).await
    }

    async fn list_buckets(&self) -> Result<Vec<BucketEntry>, OriginError> {
        let inner = &self.0;
        let _ticket = inner.exchange.gate.enter().await?;
        let mut entries = Vec::new();
        let mut token = None;
        for _ in 0..BUCKET_PAGES {
            let send = |probe| {
                let request = inner.client.list_buckets().set_continuation_token(token.clone());
                request.customize().interceptor(probe).send()
            };
            let (answer, _) = inner
                .exchange
                .run(Operation::ListBuckets, false, send)
                .await
                .map_err(|failed| inner.error("list of buckets", Asked::default(), failed))?;
            entries.extend(answer.buckets().iter().filter_map(|bucket| {
                let name = BucketName::new(bucket.name()?).ok()?;
                let created = bucket.creation_date().and_then(list::timestamp);
                Some(BucketEntry { name, created })
            }));
            token = answer.continuation_token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        Ok(entries)
    }

    async fn head_bucket(&self, bucket: &BucketName) -> Result<HeaderMap, OriginError> {
        let inner = &self.0;
        let _ticket = inner.exchange.gate.enter().await?;
        let send = |probe| {
            let request = inner.client.head_bucket().bucket(bucket.as_str());
            request.customize().interceptor(probe).send()
        };
        let what = || format!("HEAD of bucket {bucket}");
        let (_, head) = inner
            .exchange
            .run(Operation::HeadBucket, false, send)
            .await
            .map_err(|failed| inner.error(&what(), Asked::default(), failed))?;
        Ok(headers::replayed(&head.headers))
    }

    async fn bucket_location(&self, bucket: &BucketName) -> Result<String, OriginError> {
        let inner = &self.0;
        let _ticket = inner.exchange.gate.enter().await?;
        let send = |probe| {
            let request = inner.client.get_bucket_location().bucket(bucket.as_str());
            request.customize().interceptor(probe).send()
        };
        let what = || format!("location of bucket {bucket}");
        let (answer, _) = inner
            .exchange
            .run(Operation::BucketLocation, false, send)
            .await
            .map_err(|failed| inner.error(&what(), Asked::default(), failed))?;
        let location = answer.location_constraint();
        Ok(location.map(|location| location.as_str().to_owned()).unwrap_or_default())
    }

    async fn raw(&self, request: RawRequest) -> Result<RawAnswer, OriginError> {
        self.0.raw(request).await
    }
}
