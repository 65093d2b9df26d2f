//! Sees the raw head of each answer, of which the SDK's typed outputs keep only what they know, and
//! adds the request headers that the SDK would attach meaning to.

use aws_sdk_s3::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextMut,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_runtime_api::http::Headers;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::{Arc, Mutex, PoisonError};

/// Status and headers of an answer, as they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
}

/// An interceptor for one request. Clones share what was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    seen: Arc<Mutex<Option<Head>>>,
    checksums: bool,
}

impl Probe {
    /// `checksums`: send `x-amz-checksum-mode: ENABLED`. Set here and not as the operation's input,
    /// for which the SDK would wrap the body in a check that fails on ranges and parts.
    pub(super) fn new(checksums: bool) -> Self {
        Self { seen: Arc::default(), checksums }
    }

    /// The head of the answer, once there was one.
    pub(super) fn head(&self) -> Option<Head> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[dyn_dispatch_hint]
impl Intercept for Probe {
    fn name(&self) -> &'static str {
        "larder-probe"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        // It says what User-Agent says; some origins refuse any x-amz- header that they do not know.
        headers.remove("x-amz-user-agent");
        if self.checksums {
            headers.insert("x-amz-checksum-mode", "ENABLED");
        }
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let answer = context.response();
        let head = Head { status: answer.status().as_u16(), headers: header_map(answer.headers()) };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
        Ok(())
    }
}

/// The SDK's headers as a header map. They came out of one, so none is lost.
pub(super) fn header_map(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter_bytes() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    map
}
