//! The rules of `[listen]`.

use super::Check;
use crate::config::shape::{ListenShape, TlsShape};
use crate::config::{Listen, Tls};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// `sun_path` of unix(7) without its end.
const MAX_SOCKET_PATH: usize = 107;

impl Check<'_> {
    pub(super) fn listen(&mut self, shape: &ListenShape) -> Option<Listen> {
        let s3 = self.address("s3", shape.s3.as_deref().unwrap_or("127.0.0.1:9000"));
        let admin = self.address("admin", shape.admin.as_deref().unwrap_or("127.0.0.1:9001"));
        if let (Some(s3), Some(admin)) = (s3, admin)
            && s3 == admin
            && s3.port() != 0
        {
            self.problem(&["listen", "admin"], "is the same address as listen.s3");
        }
        let domains = self.words("domains", shape.domains.as_deref(), "a host name", valid_domain);
        let regions = self.words("regions", shape.regions.as_deref(), "a region", valid_region);
        let tls = shape.tls.as_ref().and_then(|tls| self.tls(tls));
        let socket = shape.socket.as_deref().map(|path| self.socket(path));
        let post_policy = shape.post_policy.unwrap_or(false);
        Some(Listen { s3: s3?, admin: admin?, domains, regions, tls, socket, post_policy })
    }

    fn socket(&mut self, path: &str) -> PathBuf {
        let key = ["listen", "socket"];
        let path = self.path(path);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            let message = format!("longer than the {MAX_SOCKET_PATH} bytes that a socket may have");
            self.problem(&key, message);
        }
        if !path.parent().is_some_and(Path::is_dir) {
            self.problem(&key, format!("the folder of {} is not there", path.display()));
        }
        path
    }

    fn address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let address = text.parse().ok();
        if address.is_none() {
            let message = format!(
                "{text:?} is not an IP address with a port; write for example \"0.0.0.0:9000\""
            );
            self.problem(&["listen", key], message);
        }
        address
    }

    fn words(
        &mut self,
        key: &str,
        words: Option<&[String]>,
        noun: &str,
        valid: fn(&str) -> bool,
    ) -> Vec<String> {
        let words: Vec<String> =
            words.unwrap_or_default().iter().map(|word| word.to_ascii_lowercase()).collect();
        for (index, word) in words.iter().enumerate().filter(|(_, word)| !valid(word)) {
            let index = index.to_string();
            self.problem(&["listen", key, &index], format!("{word:?} is not {noun}"));
        }
        words
    }

    fn tls(&mut self, shape: &TlsShape) -> Option<Tls> {
        let cert = self.pem("cert", shape.cert.as_deref(), "CERTIFICATE");
        let key = self.pem("key", shape.key.as_deref(), "PRIVATE KEY");
        Some(Tls { cert: cert?, key: key? })
    }

    fn pem(&mut self, key: &str, path: Option<&str>, label: &str) -> Option<PathBuf> {
        let path_of_key = ["listen", "tls", key];
        let Some(path) = path else {
            self.missing(&path_of_key, &format!("{key} = \"tls.pem\""));
            return None;
        };
        let path = self.path(path);
        match std::fs::read_to_string(&path) {
            Ok(text) if text.contains(label) => return Some(path),
            Ok(_) => {
                let message = format!("{} holds no PEM block of a {label}", path.display());
                self.problem(&path_of_key, message);
            }
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                self.problem(&path_of_key, message);
            }
        }
        None
    }
}

fn valid_domain(domain: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    !domain.is_empty() && domain.bytes().all(valid) && !domain.starts_with('.')
}

fn valid_region(region: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !region.is_empty() && region.bytes().all(valid)
}
