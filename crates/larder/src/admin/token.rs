//! Who may ask the admin API.
//!
//! Invariant: the comparison takes as long for a wrong token as for the right one of that length,
//! and no answer repeats what was shown.

use super::listener::Peer;
use crate::config::SecretText;
use arc_swap::ArcSwapOption;
use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The token that callers must show, if one is configured. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Token(Arc<ArcSwapOption<SecretText>>);

/// A caller who may not.
pub(super) enum Refusal {
    /// 401.
    WrongToken,
    /// 403.
    NotOnLoopback,
}

impl Token {
    /// `None` admits loopback alone.
    pub(crate) fn new(token: Option<SecretText>) -> Self {
        Self(Arc::new(ArcSwapOption::from_pointee(token)))
    }

    /// Asks for this token from now on.
    pub(crate) fn replace(&self, token: SecretText) {
        self.0.store(Some(Arc::new(token)));
    }

    pub(super) fn admits(&self, request: &Request) -> Result<(), Refusal> {
        match &*self.0.load() {
            Some(token) if shown(request).is_some_and(|shown| same(shown, token.expose())) => {
                Ok(())
            }
            Some(_) => Err(Refusal::WrongToken),
            None if on_loopback(request) => Ok(()),
            None => Err(Refusal::NotOnLoopback),
        }
    }
}

fn shown(request: &Request) -> Option<&str> {
    request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn same(shown: &str, token: &str) -> bool {
    shown.as_bytes().ct_eq(token.as_bytes()).into()
}

/// From this machine, and not by a page whose name was pointed at this machine (DNS rebinding):
/// then Host is that page's name.
fn on_loopback(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let near = peer.is_some_and(|ConnectInfo(Peer(peer))| peer.ip().is_loopback());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    near && host.is_some_and(names_loopback)
}

fn names_loopback(host: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return port(rest) && address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    }
    let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
    let near = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    near && port(rest)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::WrongToken => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
                let advice = "show the admin token: Authorization: Bearer TOKEN\n";
                (StatusCode::UNAUTHORIZED, challenge, advice).into_response()
            }
            Self::NotOnLoopback => {
                let advice =
                    "without an admin token only this machine is served, by its own name\n";
                (StatusCode::FORBIDDEN, advice).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names_loopback;

    #[test]
    fn only_names_of_this_machine_are_taken() {
        for host in ["localhost", "LOCALHOST:9001", "127.0.0.1:9001", "127.1.2.3", "[::1]:9001"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "10.0.0.1:9001", "[::2]", "127.0.0.1:x"]
        {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
