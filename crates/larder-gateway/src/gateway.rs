//! A request's way through the gateway: guard, signature (s3s), route, operation, answer.
//!
//! Invariant: every answer, whoever refuses, carries a request id, is counted once and logged once;
//! an operation runs only for a [`Principal`] whose signature the guard or s3s has verified, or that
//! anonymous mode admits.

use crate::fault::{Fault, XML_TYPE};
use crate::guard::{Guard, Passed};
use crate::host::{AnyName, Domains};
use crate::id::RequestId;
use crate::keys::{KeyRing, RingAuth};
use crate::linger::Linger;
use crate::metrics::{Metrics, NO_DATASET};
use crate::operation::{Class, Operation, Target, parse_target, target_fault};
use crate::query::Query;
use crate::reads::Reads;
use crate::refusal::s3s_fault;
use crate::rules::Rules;
use crate::upload::Intake;
use crate::wire::Wire;
use crate::{bucket, list, object, pass};
use arc_swap::ArcSwap;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use larder_model::{Clock, Dataset, ListDialect, Principal};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Request, S3Response, S3Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Instrument;

const X_AMZ_REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const X_AMZ_ID_2: HeaderName = HeaderName::from_static("x-amz-id-2");

/// What the gateway is told once, at the start.
pub struct GatewayConfig {
    /// Signing regions to accept; `us-east-1` where none is given. The first is named to clients
    /// that signed for another.
    pub regions: Vec<String>,
    /// Base domains for virtual-hosted-style requests.
    pub domains: Vec<String>,
    /// Whether unsigned requests are taken, as those of [`Principal::anonymous`]. Signed ones are
    /// verified regardless.
    pub anonymous: bool,
    /// Whether uploads by browsers' forms are taken (`listen.post_policy`).
    pub forms: bool,
    /// The most client connections at once; at least one.
    pub connections: usize,
    /// How long started answers may take after the shutdown signal.
    pub grace: Duration,
    /// Tells the time that signatures are held against.
    pub clock: Arc<dyn Clock>,
    /// Where the gateway's metrics are registered.
    pub registry: prometheus::Registry,
}

/// The S3 front of a node.
pub struct Gateway {
    front: Arc<Front>,
    guard: Guard,
    keys: Arc<KeyRing>,
    service: S3Service,
    linger: Linger,
    pub(crate) connections: usize,
    pub(crate) grace: Duration,
}

/// What requests share behind the signature check.
struct Front {
    reads: Arc<dyn Reads>,
    rules: Arc<ArcSwap<Rules>>,
    domains: Domains,
    anonymous: bool,
    metrics: Metrics,
    /// `x-amz-id-2`: which process answered.
    host_id: HeaderValue,
}

/// One verified request, as the operations see it.
pub(crate) struct Call<'a> {
    pub(crate) reads: &'a dyn Reads,
    pub(crate) rules: &'a ArcSwap<Rules>,
    pub(crate) principal: &'a Principal,
    /// Whether nobody signed it.
    pub(crate) unsigned: bool,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: &'a Query<'a>,
    pub(crate) intake: &'a Intake,
    pub(crate) id: RequestId,
}

/// An answer that serves something.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// What a request carries through s3s.
#[derive(Clone, Copy)]
struct Stamp {
    id: RequestId,
    started: Instant,
}

impl Call<'_> {
    /// The span of whatever is done for this request elsewhere: each of its lines carries the id.
    pub(crate) fn span(&self) -> tracing::Span {
        tracing::error_span!("request", id = %self.id)
    }
}

impl Reply {
    /// 200 with a document.
    pub(crate) fn xml(document: String) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, XML_TYPE);
        Self { status: StatusCode::OK, headers, body: Body::from(document) }
    }
}

impl Gateway {
    /// Builds the front on its port. `rules` and `keys` may be replaced while it serves.
    ///
    /// # Errors
    ///
    /// When the registry has metrics of these names already.
    pub fn new(
        config: GatewayConfig,
        reads: Arc<dyn Reads>,
        rules: Arc<ArcSwap<Rules>>,
        keys: Arc<KeyRing>,
    ) -> Result<Arc<Self>, prometheus::Error> {
        let GatewayConfig {
            mut regions,
            domains,
            anonymous,
            forms,
            connections,
            grace,
            clock,
            registry,
        } = config;
        if regions.is_empty() {
            regions.push("us-east-1".to_owned());
        }
        let id: String = [(); 4].map(|()| RequestId::random().to_string()).concat();
        let front = Arc::new(Front {
            reads,
            rules,
            domains: Domains::new(&domains),
            anonymous,
            metrics: Metrics::register(&registry)?,
            host_id: HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("larder")),
        });
        let domains = front.domains.clone();
        let service = signature_check(Route(front.clone()), domains, keys.clone());
        let guard = Guard { regions, anonymous, forms, domains: front.domains.clone(), clock };
        let connections = connections.max(1);
        let linger = Linger::default();
        Ok(Arc::new(Self { front, guard, keys, service, linger, connections, grace }))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.front.metrics
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        request: Request<hyper::body::Incoming>,
        wire: &Wire,
    ) -> Response<Body> {
        let stamp = Stamp { id: RequestId::random(), started: Instant::now() };
        let mut answer = self.answer_stamped(request, wire, stamp).await;
        if wire.is_lost() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    async fn answer_stamped(
        &self,
        request: Request<hyper::body::Incoming>,
        wire: &Wire,
        stamp: Stamp,
    ) -> Response<Body> {
        let bodiless = request.body().is_end_stream();
        let (parts, body) = request.into_parts();
        if parts.version != Version::HTTP_2 && !wire.is_sound() {
            return self.refuse(Fault::unparsable(), &parts.method, stamp);
        }
        let seal = match self.guard.check(&parts, bodiless) {
            Err(fault) => {
                let answer = self.refuse(fault, &parts.method, stamp);
                return self.let_go(answer, &Intake::new(body, &parts.headers, None));
            }
            Ok(Passed { query, form: true, .. }) => {
                let intake = Intake::new(body, &parts.headers, None);
                let outcome = self.perform_form(&parts, &query, &intake, stamp.id).await;
                let answer = self.respond(outcome, &parts.method, stamp);
                return self.let_go(answer, &intake);
            }
            Ok(Passed { query, signed: Some(signed), .. })
                if bodiless && parts.version == Version::HTTP_11 =>
            {
                if let Some(principal) = signed.verify(&parts, &self.keys) {
                    return self.answer_verified(&parts, &query, &principal, stamp).await;
                }
                None
            }
            Ok(Passed { signed, .. }) => signed.and_then(|signed| signed.seal(&self.keys)),
        };
        let intake = Intake::new(body, &parts.headers, seal);
        let answer = self.answer_checked(parts, &intake, stamp).await;
        self.let_go(answer, &intake)
    }

    /// The long way: s3s checks the signature, and hands over to the route. It never sees the body.
    async fn answer_checked(
        &self,
        mut parts: http::request::Parts,
        intake: &Intake,
        stamp: Stamp,
    ) -> Response<Body> {
        let method = parts.method.clone();
        parts.extensions.insert(stamp);
        parts.extensions.insert(intake.clone());
        let request = Request::from_parts(parts, Body::empty());
        let fault = match self.service.call(request).await {
            // The route stamps whatever it answers; what has no stamp, s3s has refused.
            Ok(answer) if answer.headers().contains_key(X_AMZ_REQUEST_ID) => return answer,
            Ok(answer) => {
                let document = answer.body().bytes().unwrap_or_default();
                s3s_fault(answer.status(), &document)
            }
            Err(_) => s3s_fault(StatusCode::INTERNAL_SERVER_ERROR, &[]),
        };
        self.refuse(fault, &method, stamp)
    }

    /// An upload by a browser's form, which brings its signature.
    async fn perform_form(
        &self,
        parts: &http::request::Parts,
        query: &Query<'_>,
        intake: &Intake,
        id: RequestId,
    ) -> Outcome {
        let mut seen = None;
        let result = async {
            let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
            let bucket = host.and_then(|host| self.front.domains.bucket(host));
            let Target::Bucket(bucket) =
                parse_target(parts.uri.path(), bucket).map_err(target_fault)?
            else {
                return Err(Fault::method_not_allowed(&parts.method));
            };
            let form = pass::Form::begin(intake, &parts.headers).await?;
            let principal = self.guard.check_form(&form, &self.keys)?;
            let call = Call {
                reads: &*self.front.reads,
                rules: &self.front.rules,
                principal: &principal,
                unsigned: form.get("policy").is_none(),
                method: &parts.method,
                headers: &parts.headers,
                query,
                intake,
                id,
            };
            let row = Operation::post_object().row();
            pass::post(&call, row, &bucket, form, self.guard.now(), &mut seen).await
        };
        let result = Box::pin(result).await;
        (seen, Operation::post_object(), result)
    }

    /// The short way, without s3s, for a request whose signature the guard could verify.
    async fn answer_verified(
        &self,
        parts: &http::request::Parts,
        query: &Query<'_>,
        principal: &Principal,
        stamp: Stamp,
    ) -> Response<Body> {
        let asked = Asked {
            method: &parts.method,
            path: parts.uri.path(),
            headers: &parts.headers,
            query,
            principal,
            unsigned: false,
            intake: &Intake::none(),
        };
        let outcome = self.front.perform(asked, stamp.id).await;
        self.respond(outcome, &parts.method, stamp)
    }

    /// Ends the connection behind an answer that did not wait for all of the request's body.
    fn let_go(&self, mut answer: Response<Body>, intake: &Intake) -> Response<Body> {
        if intake.is_left() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            if let Some(body) = intake.rest() {
                self.linger.read(body);
            }
        }
        answer
    }

    fn refuse(&self, fault: Fault, method: &Method, stamp: Stamp) -> Response<Body> {
        self.respond((None, Operation::OTHER, Err(fault)), method, stamp)
    }

    fn respond(&self, outcome: Outcome, method: &Method, stamp: Stamp) -> Response<Body> {
        let (status, headers, body) = self.front.close(outcome, method, stamp);
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// s3s as what it is used for: it checks signatures and hands everything to the route.
pub(crate) fn signature_check(
    route: impl S3Route,
    domains: Domains,
    keys: Arc<KeyRing>,
) -> S3Service {
    let mut builder = S3ServiceBuilder::new(NoOperations);
    builder.set_auth(RingAuth(keys));
    builder.set_host(domains);
    builder.set_validation(AnyName);
    let mut config = S3Config::default();
    // The guard has held the time against the node's clock; s3s has only the system's.
    config.presigned_url_max_skew_time_secs = u32::MAX;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_route(route);
    builder.build()
}

struct NoOperations;

impl s3s::S3 for NoOperations {}

struct Route(Arc<Front>);

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &http::Uri, _: &HeaderMap, _: &mut http::Extensions) -> bool {
        true
    }

    /// Judged in `call`, where a refusal gets its id.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let stamp = request.extensions.get::<Stamp>().copied();
        let stamp =
            stamp.unwrap_or_else(|| Stamp { id: RequestId::random(), started: Instant::now() });
        let outcome = self.0.perform_checked(&request, stamp.id).await;
        let (status, headers, body) = self.0.close(outcome, &request.method, stamp);
        let mut response = S3Response::new(body);
        response.status = Some(status);
        response.headers = headers;
        Ok(response)
    }
}

type Outcome = (Option<Arc<Dataset>>, Operation, Result<Reply, Fault>);

/// A request and who made it.
struct Asked<'a> {
    method: &'a Method,
    path: &'a str,
    headers: &'a HeaderMap,
    query: &'a Query<'a>,
    principal: &'a Principal,
    /// Whether nobody signed it.
    unsigned: bool,
    intake: &'a Intake,
}

impl Front {
    /// A request that has passed s3s.
    async fn perform_checked(&self, request: &S3Request<Body>, id: RequestId) -> Outcome {
        let principal = match &request.credentials {
            Some(credentials) => Principal::verified(&credentials.access_key),
            None if self.anonymous => Principal::anonymous(),
            None => return (None, Operation::OTHER, Err(Fault::access_denied())),
        };
        let Some(query) = Query::parse(request.uri.query().unwrap_or_default()) else {
            return (None, Operation::OTHER, Err(Fault::invalid_uri()));
        };
        let none = Intake::none();
        let asked = Asked {
            method: &request.method,
            path: request.uri.path(),
            headers: &request.headers,
            query: &query,
            principal: &principal,
            unsigned: request.credentials.is_none(),
            intake: request.extensions.get::<Intake>().unwrap_or(&none),
        };
        self.perform(asked, id).await
    }

    async fn perform(&self, asked: Asked<'_>, id: RequestId) -> Outcome {
        let host = asked.headers.get(HOST).and_then(|host| host.to_str().ok());
        let bucket = host.and_then(|host| self.domains.bucket(host));
        let target = parse_target(asked.path, bucket).map_err(target_fault);
        let parsed = target.and_then(|target| {
            let operation = Operation::of(asked.method, &target, asked.query, asked.headers)?;
            Ok((target, operation))
        });
        let (target, operation) = match parsed {
            Ok(parsed) => parsed,
            Err(fault) => return (None, Operation::OTHER, Err(fault)),
        };
        let call = Call {
            reads: &*self.reads,
            rules: &self.rules,
            principal: asked.principal,
            unsigned: asked.unsigned,
            method: asked.method,
            headers: asked.headers,
            query: asked.query,
            intake: asked.intake,
            id,
        };
        let mut seen = None;
        let result = dispatch(&call, operation, &target, &mut seen).await;
        (seen, operation, result)
    }

    /// Counts, logs and stamps an answer.
    fn close(
        &self,
        (dataset, operation, result): Outcome,
        method: &Method,
        stamp: Stamp,
    ) -> (StatusCode, HeaderMap, Body) {
        let took = stamp.started.elapsed();
        let (status, mut headers, body) = match result {
            Ok(Reply { status, headers, body }) => {
                let operation = operation.as_str();
                tracing::debug!(id = %stamp.id, operation, status = status.as_u16(), ?took);
                (status, headers, body)
            }
            Err(fault) => {
                log_fault(&fault, operation, stamp.id, took);
                fault.render(method, stamp.id, self.host_id.to_str().unwrap_or_default())
            }
        };
        let label = dataset.as_ref().map_or(NO_DATASET, |dataset| dataset.name.as_str());
        self.metrics.count(label, operation, status, took);
        headers.insert(X_AMZ_REQUEST_ID, stamp.id.to_header());
        headers.insert(X_AMZ_ID_2, self.host_id.clone());
        (status, headers, body)
    }
}

fn log_fault(fault: &Fault, operation: Operation, id: RequestId, took: Duration) {
    let (status, code, operation) = (fault.status(), fault.code(), operation.as_str());
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        tracing::warn!(%id, operation, status = status.as_u16(), code, ?took);
    } else {
        tracing::debug!(%id, operation, status = status.as_u16(), code, ?took);
    }
}

/// Whether the origin alone can answer a read: it knows its parts; and the version "null" of an object
/// is whatever was written last while versioning was off, for which origins' HEAD and GET disagree.
fn is_by_origin(query: &Query<'_>) -> bool {
    query.has("partNumber") || query.get("versionId") == Some("null")
}

async fn dispatch(
    call: &Call<'_>,
    operation: Operation,
    target: &Target,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    let row = operation.row();
    let by_origin = row.class == Class::Cached
        && matches!(target, Target::Object(..))
        && (pass::must_pass(call.headers) || is_by_origin(call.query));
    if row.class != Class::Cached || by_origin {
        return Box::pin(pass::pass(call, row, target, seen)).instrument(call.span()).await;
    }
    match (row.name, target) {
        ("GetObject", Target::Object(bucket, key)) => object::get(call, bucket, key, seen).await,
        ("HeadObject", Target::Object(bucket, key)) => object::head(call, bucket, key, seen).await,
        ("ListBuckets", _) => bucket::list(call).instrument(call.span()).await,
        (name, Target::Bucket(bucket)) => {
            let view = call.rules.load().view(call.principal, bucket)?;
            *seen = view.permit().map(|permit| permit.dataset().clone());
            let answer = async {
                match name {
                    "ListObjects" => list::list(call, &view, ListDialect::V1).await,
                    "ListObjectsV2" => list::list(call, &view, ListDialect::V2).await,
                    "HeadBucket" => bucket::head(call, &view).await,
                    "GetBucketLocation" => bucket::location(call, &view).await,
                    _ => Err(Fault::not_implemented()),
                }
            };
            answer.instrument(call.span()).await
        }
        _ => Err(Fault::not_implemented()),
    }
}
