//! Which bucket a Host header names: virtual-hosted-style addressing.
//!
//! Only below the configured base domains. A base domain itself, an IP address and every other host
//! mean path style, so that a node reached under a name nobody configured still works.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use s3s::validation::NameValidation;
use std::net::IpAddr;
use std::sync::Arc;

/// The base domains, lower case, without port, longest first.
#[derive(Clone, Debug)]
pub(crate) struct Domains(Arc<[String]>);

impl Domains {
    /// Takes domains as configured; a port is ignored.
    pub(crate) fn new(domains: &[String]) -> Self {
        let plain = |domain: &String| without_port(domain).trim_matches('.').to_ascii_lowercase();
        let mut domains: Vec<String> =
            domains.iter().map(plain).filter(|domain| !domain.is_empty()).collect();
        domains.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Self(domains.into())
    }

    /// Whether a host is a base domain or lies below one.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let host = without_port(host);
        self.bucket(host).is_some() || self.0.iter().any(|domain| host.eq_ignore_ascii_case(domain))
    }

    /// The bucket in front of a base domain, if there is one.
    pub(crate) fn bucket<'h>(&self, host: &'h str) -> Option<&'h str> {
        let host = without_port(host);
        for domain in &*self.0 {
            if host.eq_ignore_ascii_case(domain) {
                return None;
            }
            let Some(cut) = host.len().checked_sub(domain.len() + 1) else { continue };
            // A host is ASCII once the guard has seen it; `get` keeps this total regardless.
            let (Some(bucket), Some(rest)) = (host.get(..cut), host.get(cut..)) else { continue };
            let below = rest.strip_prefix('.').is_some_and(|r| r.eq_ignore_ascii_case(domain));
            if below && !bucket.is_empty() {
                return Some(bucket);
            }
        }
        None
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

/// Whether a Host header names the loopback interface, by address or by a name that resolves to
/// nothing else (RFC 6761 §6.3).
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = without_port(host);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = address.parse::<IpAddr>() {
        return address.is_loopback();
    }
    let name = host.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Leaves the judgement of bucket names to [`crate::parse_target`], which answers as S3 does.
pub(crate) struct AnyName;

impl NameValidation for AnyName {
    fn validate_bucket_name(&self, _name: &str) -> bool {
        true
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::{Domains, is_loopback};

    #[test]
    fn only_this_machine_is_near() {
        for host in ["localhost", "LOCALHOST:9000", "127.0.0.1:9000", "[::1]:80", "data.localhost"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "localhost.example", "127.0.0.1.example", "10.0.0.1", "[::2]", "x"] {
            assert!(!is_loopback(host), "{host}");
        }
        let domains = Domains::new(&["s3.local".to_owned()]);
        assert!(domains.covers("s3.local:9000") && domains.covers("data.s3.local"));
        assert!(!domains.covers("xs3.local") && !domains.covers("evil.example"));
    }

    fn check(host: &str, expected: Option<&str>) {
        let domains = Domains::new(&["s3.Local:9000".to_owned(), "eu.s3.local".to_owned()]);
        assert_eq!(domains.bucket(host), expected, "{host}");
    }

    #[test]
    fn only_hosts_below_a_base_domain_name_a_bucket() {
        check("train.s3.local", Some("train"));
        check("train.S3.LOCAL:80", Some("train"));
        check("my.bucket.s3.local", Some("my.bucket"));
        check("train.eu.s3.local", Some("train"));
        check("eu.s3.local", None);
        check("s3.local", None);
        check(".s3.local", None);
        check("xs3.local", None);
        check("elsewhere.example", None);
        check("127.0.0.1:9000", None);
        check("[::1]:9000", None);
        check("", None);
    }
}
