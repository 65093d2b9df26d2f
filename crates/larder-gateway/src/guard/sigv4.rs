//! The signature check of the common case: a request without a body, signed in the Authorization
//! header, whose canonical form (AWS, "Create a canonical request") can be read off the wire.
//!
//! It verifies and never refuses: whatever it does not recognise goes to s3s, which judges. With the
//! signing key of the day kept, a check is one hash of the canonical request and one keyed hash of
//! 160 bytes, where deriving the key anew is four more.
//!
//! Invariant: what is verified here, s3s verifies as well. So nothing is canonicalised: a request
//! whose path, query or headers would have to be is not recognised.

use super::scope::Credential;
use crate::keys::KeyRing;
use crate::upload::Seal;
use http::HeaderValue;
use http::request::Parts;
use larder_model::Principal;
use ring::{digest, hmac};

/// SHA-256 of nothing.
pub(super) const EMPTY_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// An Authorization header, taken apart and passed by the guard: its scope and time are ours.
pub(crate) struct Signed<'a> {
    pub(super) credential: Credential<'a>,
    /// SignedHeaders.
    pub(super) names: &'a str,
    /// 64 hexadecimal digits.
    pub(super) signature: &'a str,
    /// `x-amz-date`.
    pub(super) date: &'a str,
    /// `x-amz-content-sha256`.
    pub(super) payload: &'a str,
}

impl Signed<'_> {
    /// Who signed, if the check recognises the request and the signature is right. Only for requests
    /// that bring no body.
    pub(crate) fn verify(&self, parts: &Parts, keys: &KeyRing) -> Option<Principal> {
        if self.payload != EMPTY_SHA256 && self.payload != UNSIGNED {
            return None;
        }
        let mut signature = [0; 32];
        hex::decode_to_slice(self.signature, &mut signature).ok()?;
        let canonical = self.canonical_request(parts)?;
        let Credential { access_key, date, region, .. } = self.credential;
        let key = keys.signing_key(access_key, date, region)?;
        let to_sign = self.string_to_sign(&canonical);
        hmac::verify(&key, &to_sign, &signature).ok()?;
        Some(Principal::verified(access_key))
    }

    /// The chain that the body's chunks are signed in, which begins with this signature. `None` when
    /// nobody has the access key.
    pub(crate) fn seal(&self, keys: &KeyRing) -> Option<Seal> {
        if !self.payload.starts_with("STREAMING-AWS4-") {
            return None;
        }
        let Credential { access_key, date, region, .. } = self.credential;
        let key = keys.signing_key(access_key, date, region)?;
        let scope = format!("{date}/{region}/s3/aws4_request");
        Some(Seal::new(key, self.date, &scope, self.signature))
    }

    fn canonical_request(&self, parts: &Parts) -> Option<Vec<u8>> {
        let path = parts.uri.path();
        let query = parts.uri.query().unwrap_or_default();
        if !is_encoded(path.as_bytes(), true) || !is_canonical_query(query) {
            return None;
        }
        let mut canonical = Vec::with_capacity(1024);
        for piece in [parts.method.as_str(), "\n", path, "\n", query, "\n"] {
            canonical.extend_from_slice(piece.as_bytes());
        }
        let mut last = "";
        for name in self.names.split(';') {
            if name <= last
                || name == "authorization"
                || name.bytes().any(|b| b.is_ascii_uppercase())
            {
                return None;
            }
            last = name;
            let mut values = parts.headers.get_all(name).iter();
            let value = values.next().filter(|value| is_normal(value))?;
            if values.next().is_some() {
                return None;
            }
            canonical.extend_from_slice(name.as_bytes());
            canonical.push(b':');
            canonical.extend_from_slice(value.as_bytes());
            canonical.push(b'\n');
        }
        for piece in ["\n", self.names, "\n", self.payload] {
            canonical.extend_from_slice(piece.as_bytes());
        }
        Some(canonical)
    }

    fn string_to_sign(&self, canonical: &[u8]) -> Vec<u8> {
        let digest = digest::digest(&digest::SHA256, canonical);
        let mut hash = [0; 64];
        // 32 bytes are 64 digits.
        let _ = hex::encode_to_slice(digest.as_ref(), &mut hash);
        let Credential { date, region, .. } = self.credential;
        let mut text = Vec::with_capacity(192);
        let pieces =
            ["AWS4-HMAC-SHA256\n", self.date, "\n", date, "/", region, "/s3/aws4_request\n"];
        for piece in pieces {
            text.extend_from_slice(piece.as_bytes());
        }
        text.extend_from_slice(&hash);
        text
    }
}

/// The key for a day and region (AWS, "Calculate the signature").
pub(crate) fn derive_key(secret: &str, date: &str, region: &str) -> hmac::Key {
    let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
    let step = |from: hmac::Key, field: &str| key(hmac::sign(&from, field.as_bytes()).as_ref());
    let first = key(format!("AWS4{secret}").as_bytes());
    ["s3", "aws4_request"]
        .iter()
        .fold(step(step(first, date), region), |from, field| step(from, field))
}

/// Whether `text` is encoded just as the canonical form has it: unreserved characters plain, all
/// others as `%XX` in upper case; a slash plain where `slash`, escaped otherwise.
fn is_encoded(text: &[u8], slash: bool) -> bool {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    let digit = |b: Option<&u8>| match b {
        Some(b @ b'0'..=b'9') => Some(b - b'0'),
        Some(b @ b'A'..=b'F') => Some(b - b'A' + 10),
        _ => None,
    };
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        if b == b'%' {
            let (Some(high), Some(low)) = (digit(text.get(at + 1)), digit(text.get(at + 2))) else {
                return false;
            };
            let plain = high << 4 | low;
            if unreserved(plain) || (plain == b'/' && slash) {
                return false;
            }
            at += 3;
        } else if unreserved(b) || (b == b'/' && slash) {
            at += 1;
        } else {
            return false;
        }
    }
    true
}

/// Whether a query is `name=value` pairs, encoded, each name once and in order.
fn is_canonical_query(query: &str) -> bool {
    if query.is_empty() {
        return true;
    }
    let mut last = None;
    query.split('&').all(|pair| {
        let Some((name, value)) = pair.split_once('=') else { return false };
        let sorted = last.is_none_or(|last| last < name);
        last = Some(name);
        sorted && is_encoded(name.as_bytes(), false) && is_encoded(value.as_bytes(), false)
    })
}

/// Whether a header's value is its own canonical form: visible ASCII, single blanks inside.
fn is_normal(value: &HeaderValue) -> bool {
    let mut blank = true;
    for &b in value.as_bytes() {
        match b {
            b' ' if blank => return false,
            b' ' => blank = true,
            0x21..=0x7e => blank = false,
            _ => return false,
        }
    }
    !blank || value.is_empty()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod units {
    use super::{derive_key, is_canonical_query, is_encoded, is_normal};
    use http::HeaderValue;

    #[test]
    fn only_what_is_canonical_already_is_recognised() {
        for (text, slash, expected) in [
            ("/data/a-b_c.d~e", true, true),
            ("/data/%20%C3%BC", true, true),
            ("/data/%c3%bc", true, false),
            ("/data/%2F", true, false),
            ("%2F", false, true),
            ("a/b", false, false),
            ("/data/%41", true, false),
            ("/data/a+b", true, false),
            ("/data/%2", true, false),
            ("", false, true),
        ] {
            assert_eq!(is_encoded(text.as_bytes(), slash), expected, "{text}");
        }
        for (query, expected) in [
            ("", true),
            ("x-id=GetObject", true),
            ("list-type=2&prefix=a%2Fb", true),
            ("prefix=a&list-type=2", false),
            ("a=1&a=2", false),
            ("acl", false),
            ("a=b+c", false),
            ("a=b=c", false),
            ("a=1&", false),
        ] {
            assert_eq!(is_canonical_query(query), expected, "{query}");
        }
        for (value, expected) in [
            ("", true),
            ("a b", true),
            ("a  b", false),
            (" a", false),
            ("a ", false),
            ("a\tb", false),
        ] {
            let header = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            assert_eq!(is_normal(&header), expected, "{value:?}");
        }
        assert!(!is_normal(&HeaderValue::from_bytes("\u{fc}".as_bytes()).unwrap()));
    }

    #[test]
    fn the_key_is_that_of_the_documents_example() {
        // The signature of "GET Object" in AWS's "Signature Calculations for the Authorization
        // Header", from its string to sign.
        let key = derive_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1");
        let text = "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n\
                    7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972";
        let signature = hex::encode(ring::hmac::sign(&key, text.as_bytes()));
        assert_eq!(signature, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    }
}
