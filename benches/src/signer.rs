//! Signature Version 4 in the Authorization header, for GET requests made ahead of time.
//!
//! Written here rather than taken from the SDK so that the load generator's requests are made by other code than
//! the code that is measured. It signs plain keys alone (`A–Z a–z 0–9 - . _ ~ /`), where the canonical form of a
//! path is the path itself. Source: "Signature Calculations for the Authorization Header", S3 API reference.

use anyhow::{Result, ensure};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

/// The SHA-256 of no bytes, which a GET signed by a stock SDK declares.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// A key pair and the region that it signs for.
#[derive(Clone)]
pub struct Signer {
    access_key: String,
    secret: String,
    region: String,
}

impl Signer {
    /// A signer of `access_key` with `secret` in `region`.
    #[must_use]
    pub fn new(access_key: &str, secret: &str, region: &str) -> Self {
        let [access_key, secret, region] = [access_key, secret, region].map(str::to_owned);
        Self { access_key, secret, region }
    }

    /// A whole HTTP/1.1 GET request for `path` at `host`, signed now; a server takes it for fifteen minutes.
    pub fn get(&self, host: &str, path: &str) -> Result<Vec<u8>> {
        #[expect(clippy::disallowed_methods, reason = "a signature carries the wall-clock time")]
        let now = OffsetDateTime::from(std::time::SystemTime::now());
        self.get_at(host, path, now)
    }

    fn get_at(&self, host: &str, path: &str, now: OffsetDateTime) -> Result<Vec<u8>> {
        ensure!(
            path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~/".contains(&b)),
            "cannot sign {path:?}: keys of the benches need no percent-encoding"
        );
        let day = now.format(format_description!("[year][month][day]"))?;
        let clock = now.format(format_description!("[hour][minute][second]"))?;
        let date = format!("{day}T{clock}Z");
        let canonical = format!(
            "GET\n{path}\n\nhost:{host}\nx-amz-content-sha256:{EMPTY_SHA256}\nx-amz-date:{date}\n\n\
             {SIGNED}\n{EMPTY_SHA256}"
        );
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex::encode(Sha256::digest(canonical));
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let signature = hex::encode(hmac_sha256(&self.signing_key(&day), to_sign.as_bytes()));
        Ok(format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: {EMPTY_SHA256}\r\n\
             x-amz-date: {date}\r\nauthorization: AWS4-HMAC-SHA256 Credential={}/{scope}, \
             SignedHeaders={SIGNED}, Signature={signature}\r\n\r\n",
            self.access_key
        )
        .into_bytes())
    }

    fn signing_key(&self, day: &str) -> [u8; 32] {
        let key = hmac_sha256(format!("AWS4{}", self.secret).as_bytes(), day.as_bytes());
        [self.region.as_str(), "s3", "aws4_request"]
            .iter()
            .fold(key, |key, part| hmac_sha256(&key, part.as_bytes()))
    }
}

/// A whole HTTP/1.1 GET request for `path` at `host` without a signature.
#[must_use]
pub fn unsigned(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let check = |key: &[u8], message: &[u8], want: &str| {
            assert_eq!(hex::encode(hmac_sha256(key, message)), want);
        };
        check(
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
    }

    #[test]
    fn a_request_is_signed_as_botocore_signs_it() {
        // The signature is the one that botocore's S3SigV4Auth makes of the same request, key and time.
        let signer =
            Signer::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1");
        let request = signer.get_at("h:1", "/bench/4096/a", datetime!(2013-05-24 00:00 UTC));
        let want = format!(
            "GET /bench/4096/a HTTP/1.1\r\nhost: h:1\r\nx-amz-content-sha256: {EMPTY_SHA256}\r\n\
             x-amz-date: 20130524T000000Z\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential=AKIDEXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, \
             Signature=76f6230b6ff6aefc671734b36df99130823215dd97f6206daf2e5f4df8425ca0\r\n\r\n"
        );
        assert_eq!(String::from_utf8(request.expect("a plain path")).expect("ASCII"), want);
    }

    #[test]
    fn a_path_that_needs_encoding_is_refused() {
        let signer = Signer::new("a", "b", "c");
        for path in ["/a b", "/ä", "/a?b", "/a%20b"] {
            assert!(signer.get("h", path).is_err(), "{path}");
        }
    }
}
