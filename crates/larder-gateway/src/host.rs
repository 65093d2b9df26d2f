//! Which bucket a Host header names: virtual-hosted-style addressing.
//!
//! Only below the configured base domains. A base domain itself, an IP address and every other host
//! mean path style, so that a node reached under a name nobody configured still works.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use s3s::validation::NameValidation;
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
    use super::Domains;

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
