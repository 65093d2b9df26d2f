//! Signature version 4 for requests that the SDK does not build.
//!
//! Invariant: what is signed is what is sent: the URI is signed as it stands, never normalised or
//! encoded again (S3 API, "Authenticating Requests: Using the Authorization Header").

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign as sign_request,
};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_runtime_api::client::identity::Identity;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use std::error::Error;
use std::time::SystemTime;

/// The hash of no bytes at all.
pub(super) const EMPTY_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Instead of a hash: the payload is not signed.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Instead of a hash: aws-chunked, with a checksum as its trailer, neither signed.
pub(super) const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The time by which requests are signed.
#[expect(clippy::disallowed_methods, reason = "signatures are of the real time")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// A request without its body.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// What `x-amz-content-sha256` says.
    pub(super) payload: String,
}

impl Envelope {
    /// The headers with date, payload hash, session token and signature.
    pub(super) fn signed(
        &self,
        credentials: Credentials,
        region: &str,
        time: SystemTime,
    ) -> Result<HeaderMap, Box<dyn Error + Send + Sync>> {
        let identity = Identity::from(credentials);
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let params = SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name("s3")
            .time(time)
            .settings(settings)
            .build()?
            .into();
        let mut texts = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            texts.push((name.as_str(), std::str::from_utf8(value.as_bytes())?));
        }
        let request = SignableRequest::new(
            self.method.as_str(),
            self.uri.to_string(),
            texts.into_iter(),
            SignableBody::Precomputed(self.payload.clone()),
        )?;
        let (instructions, _) = sign_request(request, &params)?.into_parts();
        let mut headers = self.headers.clone();
        let (added, _) = instructions.into_parts();
        for header in added {
            let mut value = HeaderValue::try_from(header.value())?;
            value.set_sensitive(header.sensitive() || header.name() == "authorization");
            headers.insert(HeaderName::from_static(header.name()), value);
        }
        Ok(headers)
    }
}
