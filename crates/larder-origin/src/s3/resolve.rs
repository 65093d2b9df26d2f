//! Host names to addresses, by the system's resolver; `localhost` and the names below it are this
//! machine (RFC 6761 §6.3), so that virtual-hosted-style requests reach a server on it.

use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::net::lookup_host;

/// The resolver of every connection to an origin.
#[derive(Clone, Debug)]
pub(super) struct Resolver;

impl ResolveDns for Resolver {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        if is_localhost(name) {
            return DnsFuture::ready(Ok(vec![
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ]));
        }
        DnsFuture::new(async move {
            let found = lookup_host((name, 0)).await.map_err(ResolveDnsError::new)?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::is_localhost;

    #[test]
    fn only_localhost_and_its_sub_domains_are_this_machine() {
        for name in ["localhost", "LocalHost.", "bucket.localhost", "b.s3.localhost."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["notlocalhost", "localhost.example", "localhos", ""] {
            assert!(!is_localhost(name), "{name}");
        }
    }
}
