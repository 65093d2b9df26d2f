//! One request to the origin, sent as often as the limits allow, each time counted.

use super::SharedCredentials;
use super::failure::Failure;
use super::probe::{Head, Probe};
use crate::OriginLimits;
use crate::limits::Gate;
use crate::metrics::{Operation, Requests};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use larder_model::OriginName;
use std::error::Error;
use tokio::time::{Instant, sleep, timeout};

/// What requests to one origin go through.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) origin: OriginName,
    pub(super) gate: Gate,
    pub(super) limits: OriginLimits,
    pub(super) keys: SharedCredentials,
    pub(super) requests: Requests,
}

/// A failure with the number of attempts that it took.
pub(super) type Failed = (Failure, u32);

impl Exchange {
    /// Sends until there is a good answer, a failure that will stay, or no attempt left.
    ///
    /// The caller holds a ticket of the gate. A pause that the origin asked for by Retry-After is
    /// kept; when it would pass the end of `retry_time`, the failure is told at once.
    pub(super) async fn run<T, E, F>(
        &self,
        operation: Operation,
        checksums: bool,
        send: impl Fn(Probe) -> F + Send,
    ) -> Result<(T, Head), Failed>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let end = Instant::now() + self.limits.retry_time;
        let mut attempt = 1;
        loop {
            let failure = match self.attempt(operation, checksums, &send).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if attempt >= self.limits.attempts || !failure.is_transient() {
                return Err((failure, attempt));
            }
            attempt += 1;
            let pause = self.limits.pause(attempt).max(failure.retry_after().unwrap_or_default());
            if Instant::now() + pause > end {
                return Err((failure, attempt - 1));
            }
            tracing::debug!(origin = %self.origin, operation = operation.as_str(), attempt, ?pause, "retry");
            sleep(pause).await;
        }
    }

    async fn attempt<T, E, F>(
        &self,
        operation: Operation,
        checksums: bool,
        send: &(impl Fn(Probe) -> F + Send),
    ) -> Result<(T, Head), Failure>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.gate.pass().await.map_err(Failure::Final)?;
        let probe = Probe::new(checksums);
        let limit = self.limits.answer_timeout;
        // Boxed: the SDK's futures are large, and this one lies inside several others.
        let result = timeout(limit, Box::pin(send(probe.clone()))).await;
        let head = probe.head();
        self.requests.count(operation, head.as_ref().map(|head| head.status));
        match (result, head) {
            (Ok(Ok(output)), Some(head)) => Ok((output, head)),
            (Ok(Ok(_)), None) => Err(Failure::wrong("the answer's head was not seen")),
            (Ok(Err(error)), _) => Err(Failure::read(error, &self.keys)),
            (Err(_), _) => Err(Failure::silent(format!("no answer within {limit:?}"))),
        }
    }
}
