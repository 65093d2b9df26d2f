//! An error answer: what goes to the client when a request is not served.
//!
//! Not a Rust error that anybody handles further: whoever makes a [`Fault`] has decided. The texts
//! and codes are those of S3 ("Error Responses" in the S3 API Reference, and answers seen from AWS).

use crate::id::RequestId;
use crate::xml::Xml;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use s3s::Body;
use std::borrow::Cow;
use std::time::Duration;

/// The content type of S3's XML.
pub(crate) const XML_TYPE: HeaderValue = HeaderValue::from_static("application/xml");

/// Boxed, so that a `Result` that carries one stays small where nothing is wrong.
#[derive(Debug)]
pub(crate) struct Fault(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// An `Error` document, written when the request's id is known.
    Error {
        code: Cow<'static, str>,
        message: Cow<'static, str>,
        details: Vec<(&'static str, String)>,
    },
    /// The origin's own bytes, or none.
    Replay(Bytes),
}

impl Fault {
    /// An `Error` document.
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let content =
            Content::Error { code: code.into(), message: message.into(), details: Vec::new() };
        Self(Box::new(Parts { status, headers: HeaderMap::new(), content }))
    }

    /// Bytes that an origin sent, or the empty body of a 304.
    pub(crate) fn replay(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self(Box::new(Parts { status, headers, content: Content::Replay(body) }))
    }

    /// 400.
    pub(crate) fn bad(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 400 for a request that is not HTTP as S3 takes it. The connection is closed, since where
    /// this request ends is in doubt.
    pub(crate) fn unparsable() -> Self {
        Self::bad("BadRequest", "An error occurred when parsing the HTTP request.").close()
    }

    /// 400.
    pub(crate) fn invalid_uri() -> Self {
        Self::bad("InvalidURI", "Couldn't parse the specified URI.")
    }

    /// 400 for a value that S3 does not take.
    pub(crate) fn invalid_argument(
        message: impl Into<Cow<'static, str>>,
        name: &str,
        value: &str,
    ) -> Self {
        Self::bad("InvalidArgument", message)
            .with("ArgumentName", name)
            .with("ArgumentValue", value)
    }

    /// 403.
    pub(crate) fn access_denied() -> Self {
        Self::denied("Access Denied")
    }

    /// 403 AccessDenied that says why.
    pub(crate) fn denied(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "AccessDenied", message)
    }

    /// 404.
    pub(crate) fn no_such_bucket(bucket: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist")
            .with("BucketName", bucket)
    }

    /// 405.
    pub(crate) fn method_not_allowed(method: &Method) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "The specified method is not allowed against this resource.",
        )
        .with("Method", method.as_str())
    }

    /// 501.
    pub(crate) fn not_implemented() -> Self {
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
        )
    }

    /// 503 to come back from.
    pub(crate) fn unavailable(
        code: &'static str,
        message: &'static str,
        retry_after: Duration,
    ) -> Self {
        let seconds = retry_after.as_millis().div_ceil(1000).clamp(1, 3600) as u64;
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
            .header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Adds an element to the document.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Content::Error { details, .. } = &mut self.0.content {
            details.push((name, value.into()));
        }
        self
    }

    /// Adds a header to the answer.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// Closes the connection behind the answer.
    pub(crate) fn close(self) -> Self {
        self.header(CONNECTION, HeaderValue::from_static("close"))
    }

    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The S3 code, for the log; empty where the origin's bytes are replayed.
    pub(crate) fn code(&self) -> &str {
        match &self.0.content {
            Content::Error { code, .. } => code,
            Content::Replay(_) => "",
        }
    }

    /// The answer; a HEAD and a 304 have no body.
    pub(crate) fn render(
        self,
        method: &Method,
        id: RequestId,
        host_id: &str,
    ) -> (StatusCode, HeaderMap, Body) {
        let Parts { status, mut headers, content } = *self.0;
        let silent = method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        let body = match content {
            _ if silent => Bytes::new(),
            Content::Replay(bytes) => bytes,
            Content::Error { code, message, details } => {
                headers.insert(CONTENT_TYPE, XML_TYPE);
                Bytes::from(document(&code, &message, &details, id, host_id))
            }
        };
        (status, headers, Body::from(body))
    }
}

fn document(
    code: &str,
    message: &str,
    details: &[(&'static str, String)],
    id: RequestId,
    host_id: &str,
) -> String {
    let mut xml = Xml::new();
    xml.open("Error");
    xml.text("Code", code);
    xml.text("Message", message);
    for (name, value) in details {
        xml.text(name, value);
    }
    xml.text("RequestId", id.as_str());
    xml.text("HostId", host_id);
    xml.close("Error");
    xml.finish()
}
