//! The server's certificate, taken again when its files change.
//!
//! Invariant: there is always a certificate with its key. New files that cannot be used are logged
//! and leave the old one in force.

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(2);

/// TLS for the listeners: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN.
#[derive(Clone)]
pub struct Tls {
    config: Arc<rustls::ServerConfig>,
    current: Arc<Current>,
    files: Arc<Files>,
    /// The files' stamps from before they were read.
    seen: Option<Stamps>,
}

/// Times of change and lengths of certificate and key.
type Stamps = [(SystemTime, u64); 2];

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

struct Current {
    certified: ArcSwap<CertifiedKey>,
    provider: Arc<CryptoProvider>,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file holds no PEM of the wanted kind.
    #[error("{path} holds no {what} in PEM form: {reason}")]
    Pem {
        /// The file.
        path: String,
        /// What was looked for.
        what: &'static str,
        /// Why it was not found.
        reason: String,
    },
    /// The two do not belong together, or are of an unknown kind.
    #[error("certificate {certificate} and key {key} cannot be used together: {reason}")]
    Pair {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// Why.
        reason: String,
    },
}

impl Tls {
    /// Reads the certificate chain and its key.
    ///
    /// # Errors
    ///
    /// When the files cannot be read or do not belong together.
    pub async fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        // Before reading, so that a change while reading, or before serving begins, is noticed.
        let seen = files.stamps().await;
        let certified = files.read(&provider).await?;
        let certified = ArcSwap::from_pointee(certified);
        let current = Arc::new(Current { certified, provider: provider.clone() });
        let versions = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        let mut config = versions
            .map_err(|error| files.pair_fault(&error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), current, files: Arc::new(files), seen })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Takes the files again whenever they change. Never returns; to be dropped with the server.
    pub(crate) async fn watch(self) {
        let mut seen = self.seen;
        let mut ticks = tokio::time::interval(POLL);
        loop {
            ticks.tick().await;
            let stamps = self.files.stamps().await;
            if stamps == seen || stamps.is_none() {
                continue;
            }
            // Remembered before reading: a change while reading is noticed by the next look.
            seen = stamps;
            match self.files.read(&self.current.provider).await {
                Ok(certified) => {
                    self.current.certified.store(Arc::new(certified));
                    tracing::info!(file = %self.files.certificate.display(), "certificate reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "new certificate not used; the old one stays in force");
                }
            }
        }
    }
}

impl Files {
    async fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = read(&self.certificate).await?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let pem = |path: &Path, what, reason: String| TlsError::Pem {
            path: path.display().to_string(),
            what,
            reason,
        };
        let chain = chain.map_err(|e| pem(&self.certificate, "certificate", e.to_string()))?;
        if chain.is_empty() {
            return Err(pem(&self.certificate, "certificate", "there is none".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key).await?)
            .map_err(|error| pem(&self.key, "private key", error.to_string()))?;
        CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| self.pair_fault(&error.to_string()))
    }

    fn pair_fault(&self, reason: &str) -> TlsError {
        TlsError::Pair {
            certificate: self.certificate.display().to_string(),
            key: self.key.display().to_string(),
            reason: reason.to_owned(),
        }
    }

    /// Time of change and length of both files; `None` while one is missing.
    async fn stamps(&self) -> Option<Stamps> {
        let stamp = |metadata: std::fs::Metadata| Some((metadata.modified().ok()?, metadata.len()));
        let certificate = tokio::fs::metadata(&self.certificate).await.ok().and_then(stamp)?;
        let key = tokio::fs::metadata(&self.key).await.ok().and_then(stamp)?;
        Some([certificate, key])
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = tokio::fs::read(path).await;
    read.map_err(|source| TlsError::Read { path: path.display().to_string(), source })
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.load_full())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({})", self.files.certificate.display())
    }
}
