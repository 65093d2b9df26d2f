//! The connections to one origin, and the SDK client over them, with the settings without which the
//! SDK breaks a proxy (checksums on OSS and BOS, stalled-stream protection under back-pressure,
//! retries of its own).
//!
//! Invariant: typed and raw requests share one pool.

use super::endpoint::Endpoint;
use super::resolve::Resolver;
use super::{Addressing, S3Config};
use crate::ConfigError;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::{
    HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::time::Duration;

/// Shorter than S3's own, so that a connection from the pool is rarely one that was just closed.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// The pool of connections. Opens none.
pub(super) fn connector(
    config: &S3Config,
    endpoint: &Endpoint,
) -> Result<SharedHttpConnector, ConfigError> {
    let settings =
        HttpConnectorSettings::builder().connect_timeout(config.limits.connect_timeout).build();
    let connector = Connector::builder()
        .connector_settings(settings)
        .pool_max_idle_per_host(config.limits.in_flight)
        .pool_idle_timeout(POOL_IDLE)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls(config, endpoint)?)
        .build_with_resolver(Resolver);
    Ok(SharedHttpConnector::new(connector))
}

/// Without TLS the system's root certificates are not even looked for: a container may have none.
fn tls(config: &S3Config, endpoint: &Endpoint) -> Result<TlsContext, ConfigError> {
    let trusted = match &config.ca {
        Some(pem) => {
            check_ca(pem)
                .map_err(|reason| ConfigError::Ca { origin: config.name.clone(), reason })?;
            TrustStore::empty().with_pem_certificate(pem.as_slice())
        }
        None => TrustStore::empty().with_native_roots(endpoint.is_tls()),
    };
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context
        .map_err(|error| ConfigError::Ca { origin: config.name.clone(), reason: error.to_string() })
}

/// Whether a connector can trust these certificates: at least one, each fit to be a root.
///
/// # Errors
///
/// What is wrong with them.
pub fn check_ca(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("it is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate is not usable: {error}"))?;
    }
    if roots.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(()) }
}

/// The SDK client over those connections.
pub(super) fn build(
    config: &S3Config,
    addressing: Addressing,
    connector: SharedHttpConnector,
) -> Client {
    let settings = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(config.region.clone()))
        .endpoint_url(config.endpoint.trim_end_matches('/'))
        .force_path_style(addressing == Addressing::Path)
        .credentials_provider(SharedCredentialsProvider::new(config.credentials.clone()))
        // Keys are replaced at run time, and cached by their provider; a second cache keeps old ones.
        .identity_cache(IdentityCache::no_cache())
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .disable_s3_express_session_auth(true)
        .http_client(http_client_fn(move |_, _| connector.clone()))
        .build();
    Client::from_conf(settings)
}
