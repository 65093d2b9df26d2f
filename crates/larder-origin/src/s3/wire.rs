//! Sends one request that is ready but for its signature, over the pool that the SDK uses too.
//!
//! Not here: retries, and what an answer means.

use super::SharedCredentials;
use super::endpoint::Endpoint;
use super::failure::causes;
use super::sign::{Envelope, now};
use super::upload::{Leash, Phase, Upload};
use crate::OriginLimits;
use aws_smithy_runtime_api::client::connection::CaptureSmithyConnection;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::Response;
use std::time::Duration;
use tokio::time::sleep;

/// The way to one origin.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) connector: SharedHttpConnector,
    pub(super) endpoint: Endpoint,
    pub(super) region: String,
}

/// A request's body.
pub(super) enum Outgoing {
    /// None.
    Empty,
    /// May be sent again.
    Whole(Bytes),
    /// May be sent again only while it is untouched.
    Stream(Upload),
}

/// An answer whose body has not been read. The leash calls the request's body off once the answer is
/// done with, where the origin did not wait for it.
pub(super) struct Answered {
    pub(super) response: Response<SdkBody>,
    pub(super) leash: Leash,
}

/// No answer.
#[derive(Debug)]
pub(super) struct Lost {
    /// What happened. Holds no secret.
    pub(super) reason: String,
    /// Whether there was a connection, so that the origin may have seen something.
    pub(super) connected: bool,
    /// Whether it was the request's body that failed.
    pub(super) broken: bool,
    /// Whether another attempt could help.
    pub(super) transient: bool,
}

impl Lost {
    fn unsent(reason: String, transient: bool) -> Self {
        Self { reason, connected: false, broken: false, transient }
    }
}

impl Wire {
    /// Signs with the current keys and sends. Bounded by `limits` in time, as [`Upload::stalled`]
    /// says; an answer without a request body is due within `answer_timeout`.
    pub(super) async fn send(
        &self,
        envelope: &Envelope,
        body: &Outgoing,
        keys: &SharedCredentials,
        limits: &OriginLimits,
    ) -> Result<Answered, Lost> {
        let credentials = keys.credentials().await;
        let credentials = credentials
            .map_err(|error| Lost::unsent(format!("no keys for it: {}", causes(&error)), true))?;
        let headers = envelope
            .signed(credentials, &self.region, now())
            .map_err(|error| Lost::unsent(format!("it cannot be signed: {error}"), false))?;
        let upload = match body {
            Outgoing::Empty => None,
            Outgoing::Whole(bytes) => Some(Upload::whole(bytes.clone())),
            Outgoing::Stream(upload) => Some(upload.clone()),
        };
        let mut request =
            http::Request::new(upload.as_ref().map_or_else(SdkBody::empty, Upload::body));
        *request.method_mut() = envelope.method.clone();
        *request.uri_mut() = envelope.uri.clone();
        *request.headers_mut() = headers;
        let mut request = HttpRequest::try_from(request)
            .map_err(|error| Lost::unsent(format!("it cannot be built: {error}"), false))?;
        let connection = CaptureSmithyConnection::new();
        request.add_extension(connection.clone());

        let mut leash = Leash(upload);
        let result = tokio::select! {
            biased;
            result = self.connector.call(request) => result.map_err(|error| (causes(&error), None)),
            (phase, limit) = stalled(leash.0.as_ref(), limits) => Err((told(phase, limit), Some(phase))),
        };
        let phase = leash.0.as_ref().map_or(Phase::Done, Upload::phase);
        let starved = matches!(&result, Err((_, Some(Phase::Awaited))));
        let lost = |reason| Lost {
            reason,
            connected: connection.get().is_some(),
            broken: phase == Phase::Broken || starved,
            transient: true,
        };
        match result {
            // An answer to half a request is about that half.
            Ok(_) if phase == Phase::Broken => Err(lost("the request's body broke off".to_owned())),
            Ok(response) => match response.try_into_http1x() {
                Ok(response) => Ok(Answered { response, leash }),
                Err(error) => Err(lost(format!("its answer cannot be read: {error}"))),
            },
            Err((reason, _)) => {
                if phase == Phase::Untouched {
                    // It may be sent over another connection.
                    leash.0 = None;
                }
                Err(lost(reason))
            }
        }
    }
}

async fn stalled(upload: Option<&Upload>, limits: &OriginLimits) -> (Phase, Duration) {
    match upload {
        Some(upload) => upload.stalled(limits).await,
        None => {
            sleep(limits.answer_timeout).await;
            (Phase::Done, limits.answer_timeout)
        }
    }
}

fn told(phase: Phase, limit: Duration) -> String {
    match phase {
        Phase::Untouched => format!("no connection within {limit:?}"),
        Phase::Awaited => format!("no byte of the request's body came within {limit:?}"),
        Phase::Handed => format!("no byte of the request's body was taken within {limit:?}"),
        Phase::Done | Phase::Broken => format!("no answer within {limit:?}"),
    }
}
