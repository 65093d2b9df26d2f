//! aws-chunked, written independently of the one that is under test.

use super::sign::{EMPTY, Signing, hmac};
use sha2::{Digest, Sha256};

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// How the chunks of a body are told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Chunks {
    Signed,
    SignedTrailer,
    UnsignedTrailer,
}

impl Chunks {
    /// The value of `x-amz-content-sha256`.
    pub(crate) fn payload(self) -> &'static str {
        match self {
            Self::Signed => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Self::SignedTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            Self::UnsignedTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }
}

impl Signing {
    fn sign_text(&self, text: &str) -> String {
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for field in self.scope().split('/') {
            key = hmac(&key, field.as_bytes());
        }
        hex::encode(hmac(&key, text.as_bytes()))
    }

    /// A body in aws-chunked, whose chain of signatures begins with `seed`.
    pub(crate) fn chunked(
        &self,
        kind: Chunks,
        seed: &str,
        payload: &[u8],
        chunk: usize,
        trailer: Option<(&str, &str)>,
    ) -> Vec<u8> {
        let signed = kind != Chunks::UnsignedTrailer;
        let (date, scope) = (self.amz_date(), self.scope());
        let mut last = seed.to_owned();
        let mut body = Vec::new();
        for piece in payload.chunks(chunk).chain([&[][..]]) {
            body.extend(format!("{:x}", piece.len()).into_bytes());
            if signed {
                let hash = sha256_hex(piece);
                last = self.sign_text(&format!(
                    "AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{last}\n{EMPTY}\n{hash}"
                ));
                body.extend(format!(";chunk-signature={last}").into_bytes());
            }
            body.extend(b"\r\n");
            body.extend(piece);
            if !piece.is_empty() {
                body.extend(b"\r\n");
            }
        }
        if let Some((name, value)) = trailer {
            body.extend(format!("{name}:{value}\r\n").into_bytes());
            if signed {
                let hash = sha256_hex(format!("{name}:{value}\n").as_bytes());
                let signature = self.sign_text(&format!(
                    "AWS4-HMAC-SHA256-TRAILER\n{date}\n{scope}\n{last}\n{hash}"
                ));
                body.extend(format!("x-amz-trailer-signature:{signature}\r\n").into_bytes());
            }
        }
        body.extend(b"\r\n");
        body
    }
}
