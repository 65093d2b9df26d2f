//! The SDK client of one origin, with the settings without which the SDK breaks a proxy
//! (checksums on OSS and BOS, stalled-stream protection under back-pressure, retries of its own).

use super::{Addressing, S3Config};
use crate::ConfigError;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use http::Uri;
use std::time::Duration;

/// Shorter than S3's own, so that a connection from the pool is rarely one that was just closed.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// Builds the client. Opens no connection.
pub(super) fn build(config: &S3Config) -> Result<Client, ConfigError> {
    let http =
        Builder::new().pool_max_idle_per_host(config.limits.in_flight).pool_idle_timeout(POOL_IDLE);
    // Without TLS the system's root certificates are not even looked for: a container may have none.
    let http = if is_tls(config)? {
        http.tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    } else {
        http.build_http()
    };
    let addressing = config.addressing.unwrap_or(config.dialect.default_addressing());
    let settings = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(config.region.clone()))
        .endpoint_url(config.endpoint.trim_end_matches('/'))
        .force_path_style(addressing == Addressing::Path)
        .credentials_provider(SharedCredentialsProvider::new(config.credentials.clone()))
        // Keys are replaced at run time; the provider costs nothing, a cache would keep old ones.
        .identity_cache(IdentityCache::no_cache())
        .retry_config(RetryConfig::disabled())
        .timeout_config(
            TimeoutConfig::builder().connect_timeout(config.limits.connect_timeout).build(),
        )
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .disable_s3_express_session_auth(true)
        .http_client(http)
        .build();
    Ok(Client::from_conf(settings))
}

fn is_tls(config: &S3Config) -> Result<bool, ConfigError> {
    let invalid = |reason| ConfigError::Endpoint {
        origin: config.name.clone(),
        endpoint: config.endpoint.clone(),
        reason,
    };
    // A password in the URL would end up in messages; nothing signs with it either.
    if config.endpoint.contains('@') {
        let endpoint = "(with user or password)".to_owned();
        let reason = "it must not hold a user or password";
        return Err(ConfigError::Endpoint { origin: config.name.clone(), endpoint, reason });
    }
    let uri: Uri = config.endpoint.parse().map_err(|_| invalid("it is not a URL"))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(invalid("it has no host"));
    }
    if uri.query().is_some() {
        return Err(invalid("it must not have a query"));
    }
    match uri.scheme_str() {
        Some("https") => Ok(true),
        Some("http") => Ok(false),
        _ => Err(invalid("it must begin with https:// or http://")),
    }
}
