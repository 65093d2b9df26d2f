//! An origin behind TLS, with a certificate of a private CA.

use super::double::{Double, Step, answer, config, limits};
use super::{put, request, send, streamed};
use http::Method;
use larder_model::{BucketName, Origin as _, OriginError, RawBody};
use larder_origin::{Addressing, Dialect, S3Origin, check_ca};
use prometheus::Registry;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

/// A CA of the test: its certificate, and a server for `s3.localhost` and the names below.
fn authority() -> (Vec<u8>, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().pem().into_bytes();
    let issuer = Issuer::new(params, key);
    let names = ["s3.localhost".to_owned(), "*.s3.localhost".to_owned()];
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .unwrap();
    (root, TlsAcceptor::from(Arc::new(config)))
}

async fn double(ca: Option<Vec<u8>>, acceptor: TlsAcceptor, steps: Vec<Step>) -> Double {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://s3.localhost:{}", listener.local_addr().unwrap().port());
    let mut config = config(Dialect::Oss, endpoint, limits());
    config.addressing = Some(Addressing::Virtual);
    config.limits.attempts = 1;
    config.ca = ca;
    Double::serve_tls(listener, acceptor, config, steps)
}

#[tokio::test]
async fn typed_and_raw_requests_go_over_tls_to_a_private_ca() {
    let (root, acceptor) = authority();
    let steps = vec![answer(200, "", ""), answer(200, "", "")];
    let double = double(Some(root), acceptor, steps).await;
    assert_eq!(send(&double, put(streamed("abc"))).await.unwrap().0.status, 200);
    double.origin.head_bucket(&BucketName::new("bucket").unwrap()).await.unwrap();
    let seen = double.seen();
    assert_eq!(seen[0].body, b"abc");
    for seen in &seen {
        assert!(seen.header("host").unwrap().starts_with("bucket.s3.localhost:"));
        seen.verify("cn-test-1");
    }
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_not_trusted() {
    let (_, acceptor) = authority();
    let (other, _) = authority();
    let double = double(Some(other), acceptor, vec![answer(200, "", "")]).await;
    let failed =
        send(&double, request(Method::GET, Some("k"), RawBody::Empty)).await.err().unwrap();
    assert!(matches!(&failed, OriginError::Unreachable { .. }), "{failed}");
    assert!(failed.to_string().contains("certificate"), "{failed}");
    assert!(double.seen().is_empty());
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_at_the_start() {
    for pem in
        [&b""[..], b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        assert!(check_ca(pem).is_err());
        let mut config = config(Dialect::S3, "https://s3.localhost".into(), limits());
        config.ca = Some(pem.to_vec());
        let refused = S3Origin::new(config, &Registry::new()).err().unwrap();
        assert!(refused.to_string().contains("its ca cannot be used"), "{refused}");
    }
    assert!(check_ca(&authority().0).is_ok());
}
