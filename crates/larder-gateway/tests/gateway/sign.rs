//! A small SigV4 signer of our own, independent of the one under test (AWS, "Authenticating
//! Requests (AWS Signature Version 4)"), with every field open to be got wrong.

use sha2::{Digest, Sha256};

pub(crate) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Who signs, when and for what.
#[derive(Clone, Debug)]
pub(crate) struct Signing {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) region: String,
    pub(crate) service: String,
    pub(crate) terminator: String,
    pub(crate) algorithm: String,
    /// Seconds since 1970.
    pub(crate) at: i64,
    /// The scope's date, if it is to differ.
    pub(crate) scope_date: Option<String>,
    /// Signed headers, if they are not to be all.
    pub(crate) signed: Option<Vec<String>>,
    pub(crate) payload: String,
    pub(crate) expires: String,
}

/// A request as far as a signature knows it. `path` is encoded already, `query` is not.
#[derive(Clone, Debug)]
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Vec<(String, String)>,
    /// Lower-case names; `host` is among them.
    pub(crate) headers: Vec<(String, String)>,
}

impl Signing {
    pub(crate) fn amz_date(&self) -> String {
        let t = time::OffsetDateTime::from_unix_timestamp(self.at).unwrap();
        let (y, m, d) = (t.year(), u8::from(t.month()), t.day());
        format!("{y:04}{m:02}{d:02}T{:02}{:02}{:02}Z", t.hour(), t.minute(), t.second())
    }

    pub(crate) fn scope(&self) -> String {
        let date = self.scope_date.clone().unwrap_or_else(|| self.amz_date()[..8].to_owned());
        format!("{date}/{}/{}/{}", self.region, self.service, self.terminator)
    }

    fn signed_headers(&self, request: &Signable<'_>) -> Vec<String> {
        let all = || request.headers.iter().map(|(name, _)| name.clone()).collect();
        let mut signed: Vec<String> = self.signed.clone().unwrap_or_else(all);
        signed.sort();
        signed.dedup();
        signed
    }

    fn signature(&self, request: &Signable<'_>, payload: &str) -> String {
        let signed = self.signed_headers(request);
        let mut query: Vec<(String, String)> =
            request.query.iter().map(|(n, v)| (encode(n), encode(v))).collect();
        query.sort();
        let query: Vec<String> = query.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query.join("&"));
        for name in &signed {
            let values = request.headers.iter().filter(|(n, _)| n == name);
            let values: Vec<&str> = values.map(|(_, value)| value.trim()).collect();
            canonical += &format!("{name}:{}\n", values.join(","));
        }
        canonical += &format!("\n{}\n{payload}", signed.join(";"));
        let scope = self.scope();
        let digest = hex::encode(Sha256::digest(canonical));
        let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", self.amz_date());
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for field in scope.split('/') {
            key = hmac(&key, field.as_bytes());
        }
        hex::encode(hmac(&key, to_sign.as_bytes()))
    }

    fn credential(&self) -> String {
        format!("{}/{}", self.access_key, self.scope())
    }

    /// The value of the Authorization header.
    pub(crate) fn authorization(&self, request: &Signable<'_>) -> String {
        format!(
            "{} Credential={}, SignedHeaders={}, Signature={}",
            self.algorithm,
            self.credential(),
            self.signed_headers(request).join(";"),
            self.signature(request, &self.payload)
        )
    }

    /// The query of a presigned URL, encoded.
    pub(crate) fn presign(&self, request: &Signable<'_>) -> String {
        let mut request = request.clone();
        let fields = [
            ("X-Amz-Algorithm", self.algorithm.clone()),
            ("X-Amz-Credential", self.credential()),
            ("X-Amz-Date", self.amz_date()),
            ("X-Amz-Expires", self.expires.clone()),
            ("X-Amz-SignedHeaders", self.signed_headers(&request).join(";")),
        ];
        request.query.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let signature = self.signature(&request, "UNSIGNED-PAYLOAD");
        request.query.push(("X-Amz-Signature".to_owned(), signature));
        encode_query(&request.query)
    }
}

pub(crate) fn encode_query(query: &[(String, String)]) -> String {
    let pairs: Vec<String> =
        query.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
    pairs.join("&")
}

pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            encoded.push(b as char);
        } else {
            encoded += &format!("%{b:02X}");
        }
    }
    encoded
}

pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner.finalize());
    outer.finalize().to_vec()
}

/// The signer of the examples in AWS's documentation, at their time.
fn example() -> Signing {
    Signing {
        access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        region: "us-east-1".to_owned(),
        service: "s3".to_owned(),
        terminator: "aws4_request".to_owned(),
        algorithm: "AWS4-HMAC-SHA256".to_owned(),
        at: 1_369_353_600,
        scope_date: None,
        signed: None,
        payload: EMPTY.to_owned(),
        expires: "86400".to_owned(),
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn the_signer_agrees_with_the_documents_get_object() {
    let request = Signable {
        method: "GET",
        path: "/test.txt",
        query: Vec::new(),
        headers: pairs(&[
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ]),
    };
    let signed = example().authorization(&request);
    let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    assert!(signed.ends_with(expected), "{signed}");
}

#[test]
fn the_signer_agrees_with_the_documents_presigned_url() {
    let request = Signable {
        method: "GET",
        path: "/test.txt",
        query: Vec::new(),
        headers: pairs(&[("host", "examplebucket.s3.amazonaws.com")]),
    };
    let signed = example().presign(&request);
    let expected = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    assert!(signed.ends_with(expected), "{signed}");
}
