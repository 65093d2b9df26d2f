//! The id of a request: in its answer's headers, in its error's XML, and in every line it logs.

use http::HeaderValue;
use std::fmt;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// 16 upper-case hexadecimal digits, drawn at random.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId([u8; 16]);

impl RequestId {
    /// A new one.
    pub(crate) fn random() -> Self {
        let bits: u64 = rand::random();
        let mut digits = [0; 16];
        for (place, digit) in digits.iter_mut().enumerate() {
            *digit = HEX[(bits >> (4 * place)) as usize & 15];
        }
        Self(digits)
    }

    /// The digits.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The value of `x-amz-request-id`.
    pub(crate) fn to_header(self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).unwrap_or(HeaderValue::from_static(""))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::RequestId;

    #[test]
    fn an_id_is_16_upper_case_hexadecimal_digits_and_not_repeated() {
        let (a, b) = (RequestId::random(), RequestId::random());
        assert_ne!(a.as_str(), b.as_str());
        assert_eq!(a.as_str().len(), 16);
        assert!(a.as_str().bytes().all(|c| matches!(c, b'0'..=b'9' | b'A'..=b'F')));
        assert_eq!(a.to_header().as_bytes(), a.as_str().as_bytes());
    }
}
