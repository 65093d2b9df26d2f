//! Where a request goes: the URI of a bucket or a key at the endpoint, encoded as S3 signs it.
//!
//! Invariant: a key's bytes reach the URI as they are, each either itself or percent-encoded. Nothing
//! is normalised: `..`, `//` and `%` are ordinary parts of keys.

use super::{Addressing, S3Config};
use crate::ConfigError;
use http::Uri;
use http::uri::{InvalidUri, Scheme};
use larder_model::{BucketName, ObjectKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::net::IpAddr;

/// What a query holds as it is (RFC 3986 §2.3, and S3's rule for signatures).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What a path holds as it is.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// An endpoint, read once.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    tls: bool,
    /// Host, and the port where one was given.
    authority: String,
    /// Whether the host is an address, which has no sub-domains.
    numeric: bool,
    /// The path before every bucket; empty or without a slash at its end.
    prefix: String,
    pub(super) addressing: Addressing,
}

impl Endpoint {
    /// Reads the endpoint of a configuration.
    pub(super) fn of(config: &S3Config) -> Result<Self, ConfigError> {
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
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| invalid("it has no host"))?;
        if uri.query().is_some() {
            return Err(invalid("it must not have a query"));
        }
        let scheme = uri.scheme();
        if scheme != Some(&Scheme::HTTPS) && scheme != Some(&Scheme::HTTP) {
            return Err(invalid("it must begin with https:// or http://"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        Ok(Self {
            tls: scheme == Some(&Scheme::HTTPS),
            authority: authority.as_str().to_owned(),
            numeric: host.parse::<IpAddr>().is_ok(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            addressing: config.addressing.unwrap_or(config.dialect.default_addressing()),
        })
    }

    /// Whether it is reached by TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// The URI of a key, of a bucket, or of the service.
    pub(super) fn uri(
        &self,
        bucket: Option<&BucketName>,
        key: Option<&ObjectKey>,
        query: &[(String, String)],
    ) -> Result<Uri, InvalidUri> {
        let mut uri = String::from(if self.tls { "https://" } else { "http://" });
        let in_host = bucket.filter(|bucket| self.takes_as_host(bucket.as_str()));
        if let Some(bucket) = in_host {
            uri.push_str(bucket.as_str());
            uri.push('.');
        }
        uri.push_str(&self.authority);
        uri.push_str(&self.prefix);
        uri.push('/');
        if let (Some(bucket), None) = (bucket, in_host) {
            uri.extend(utf8_percent_encode(bucket.as_str(), PATH));
            if key.is_some() {
                uri.push('/');
            }
        }
        if let Some(key) = key {
            uri.extend(utf8_percent_encode(key.as_str(), PATH));
        }
        for (index, (name, value)) in query.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.extend(utf8_percent_encode(name, QUERY));
            if !value.is_empty() {
                uri.push('=');
                uri.extend(utf8_percent_encode(value, QUERY));
            }
        }
        uri.parse()
    }

    /// Whether the bucket's name goes before the host: the rule of the AWS SDKs, so that typed and
    /// raw requests of one bucket agree. A name with a dot would match no wildcard certificate.
    pub(super) fn takes_as_host(&self, bucket: &str) -> bool {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let label = |label: &str| {
            let inner = label.bytes().all(|byte| letter(byte) || byte == b'-');
            let ends = label.bytes().next().is_some_and(letter)
                && label.bytes().next_back().is_some_and(letter);
            (3..=63).contains(&label.len()) && inner && ends
        };
        let hostable = if self.tls { label(bucket) } else { bucket.split('.').all(label) };
        self.addressing == Addressing::Virtual && !self.numeric && hostable
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;
    use crate::s3::Addressing;
    use larder_model::{BucketName, ObjectKey};

    fn endpoint(authority: &str, addressing: Addressing) -> Endpoint {
        Endpoint {
            tls: true,
            authority: authority.into(),
            numeric: authority.starts_with("127."),
            prefix: String::new(),
            addressing,
        }
    }

    fn check(addressing: Addressing, bucket: Option<&str>, key: Option<&str>, expected: &str) {
        let bucket = bucket.map(|name| BucketName::new(name).unwrap());
        let key = key.map(|key| ObjectKey::new(key).unwrap());
        let uri = endpoint("s3.test:8443", addressing).uri(bucket.as_ref(), key.as_ref(), &[]);
        assert_eq!(uri.unwrap().to_string(), expected);
    }

    #[test]
    fn buckets_go_into_the_path_or_the_host() {
        check(Addressing::Path, None, None, "https://s3.test:8443/");
        check(Addressing::Path, Some("pail"), None, "https://s3.test:8443/pail");
        check(Addressing::Path, Some("pail"), Some("k"), "https://s3.test:8443/pail/k");
        check(Addressing::Virtual, None, None, "https://s3.test:8443/");
        check(Addressing::Virtual, Some("pail"), None, "https://pail.s3.test:8443/");
        check(Addressing::Virtual, Some("pail"), Some("k"), "https://pail.s3.test:8443/k");
    }

    #[test]
    fn a_name_that_is_no_label_stays_in_the_path() {
        for name in ["my.pail", "Old_Bucket"] {
            let expected = format!("https://s3.test:8443/{name}/k");
            check(Addressing::Virtual, Some(name), Some("k"), &expected);
        }
        let numeric = endpoint("127.0.0.1:1", Addressing::Virtual);
        let uri = numeric.uri(Some(&BucketName::new("pail").unwrap()), None, &[]).unwrap();
        assert_eq!(uri.to_string(), "https://127.0.0.1:1/pail");
    }

    #[test]
    fn keys_are_encoded_byte_by_byte_and_never_normalised() {
        for (key, path) in [
            ("a//b", "a//b"),
            ("/lead", "/lead"),
            ("..", ".."),
            ("a/../b/./c/", "a/../b/./c/"),
            ("a b+c%41", "a%20b%2Bc%2541"),
            ("-._~", "-._~"),
            ("!*'();:@&=$,?#[]", "%21%2A%27%28%29%3B%3A%40%26%3D%24%2C%3F%23%5B%5D"),
            ("ключ\u{1}", "%D0%BA%D0%BB%D1%8E%D1%87%01"),
        ] {
            let expected = format!("https://s3.test:8443/pail/{path}");
            check(Addressing::Path, Some("pail"), Some(key), &expected);
            let expected = format!("https://pail.s3.test:8443/{path}");
            check(Addressing::Virtual, Some("pail"), Some(key), &expected);
        }
        let long = "ж".repeat(512);
        let expected = format!("https://s3.test:8443/pail/{}", "%D0%B6".repeat(512));
        check(Addressing::Path, Some("pail"), Some(&long), &expected);
    }

    #[test]
    fn a_parameter_without_a_value_is_its_name_alone() {
        let query = [("uploads", ""), ("prefix", "a b/+&=%"), ("x", "ü")];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let uri = endpoint("s3.test", Addressing::Path).uri(None, None, &query).unwrap();
        assert_eq!(uri.query(), Some("uploads&prefix=a%20b%2F%2B%26%3D%25&x=%C3%BC"));
    }
}
