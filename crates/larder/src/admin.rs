//! The admin listener: health, readiness, metrics and status.
//!
//! Not here: S3. Invariant: metrics and status are given only to callers who show the token or,
//! where none is configured, to callers on loopback; health and readiness tell nothing but a word.

mod listener;
mod process;
mod token;

pub(crate) use process::register;
pub(crate) use token::Token;

use crate::clock::SystemClock;
use crate::report::{DatasetReport, Report};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use listener::{Counted, Peer};
use prometheus::{Registry, TextEncoder};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How far the node has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Opening the cache.
    Starting,
    /// Taking requests.
    Ready,
    /// Finishing requests, taking no more work.
    Draining,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

type Datasets = Box<dyn Fn() -> Vec<DatasetReport> + Send + Sync>;

/// What the admin listener shows. Shared with whoever runs the node.
pub(crate) struct Admin {
    phase: watch::Sender<Phase>,
    token: Token,
    registry: Registry,
    clock: SystemClock,
    node: String,
    /// Tells the datasets; not there while the node starts.
    datasets: OnceLock<Datasets>,
}

impl Admin {
    pub(crate) fn new(token: Token, registry: Registry, clock: SystemClock) -> Arc<Self> {
        let phase = watch::Sender::new(Phase::Starting);
        let node = process::host_name();
        Arc::new(Self { phase, token, registry, clock, node, datasets: OnceLock::new() })
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// From now on the status has datasets. Only the first call counts.
    pub(crate) fn show(&self, datasets: impl Fn() -> Vec<DatasetReport> + Send + Sync + 'static) {
        let _second_call_is_ignored = self.datasets.set(Box::new(datasets));
    }

    /// Serves until `shutdown` resolves and the requests at hand are answered.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let service = self.router().into_make_service_with_connect_info::<Peer>();
        axum::serve(Counted::new(listener), service).with_graceful_shutdown(shutdown).await
    }

    fn router(self: Arc<Self>) -> Router {
        let guarded = Router::new()
            .route("/metrics", get(metrics))
            .route("/v1/status", get(status))
            .layer(middleware::from_fn_with_state(self.clone(), admit));
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readiness))
            .merge(guarded)
            .with_state(self)
    }

    fn report(&self) -> Report {
        Report {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            phase: self.phase.borrow().as_str().to_owned(),
            uptime_seconds: self.clock.uptime().as_secs(),
            datasets: self.datasets.get().map(|datasets| datasets()).unwrap_or_default(),
        }
    }
}

async fn readiness(State(admin): State<Arc<Admin>>) -> Response {
    let phase = *admin.phase.borrow();
    let status = match phase {
        Phase::Ready => StatusCode::OK,
        Phase::Starting | Phase::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{}\n", phase.as_str())).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    match TextEncoder::new().encode_to_string(&admin.registry.gather()) {
        Ok(text) => (content_type, text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Json<Report> {
    Json(admin.report())
}

/// Lets callers through who show the token, or who are as close as the rules ask for.
async fn admit(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match admin.token.admits(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Admin, Phase, Token};
    use crate::clock::SystemClock;
    use crate::config::SecretText;
    use crate::status::fetch;
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    async fn serve(token: Option<&str>) -> (Arc<Admin>, String, oneshot::Sender<()>) {
        let token = Token::new(token.map(SecretText::new));
        let registry = prometheus::Registry::new();
        let clock = SystemClock::start();
        super::register(&registry, &clock).unwrap();
        let admin = Admin::new(token, registry, clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(admin.clone().serve(listener, async move {
            let _ = stopped.await;
        }));
        (admin, url, stop)
    }

    async fn get(url: &str, path: &str, token: Option<&str>) -> (u16, String) {
        let (status, body) = fetch(url, path, token).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_follows_the_phase_and_health_does_not() {
        let (admin, url, _stop) = serve(None).await;
        for (phase, expected) in
            [(Phase::Starting, 503), (Phase::Ready, 200), (Phase::Draining, 503)]
        {
            admin.set_phase(phase);
            assert_eq!(get(&url, "/readyz", None).await.0, expected, "{phase:?}");
            assert_eq!(get(&url, "/healthz", None).await, (200, "ok\n".to_owned()));
        }
    }

    #[tokio::test]
    async fn metrics_and_status_need_the_token_where_there_is_one() {
        let (_admin, url, _stop) = serve(Some("canary-token")).await;
        for path in ["/metrics", "/v1/status"] {
            for wrong in [None, Some(""), Some("canary-tokem"), Some("canary-token2")] {
                let (status, body) = get(&url, path, wrong).await;
                assert_eq!(status, 401, "{path} {wrong:?}");
                assert!(!body.contains("canary"), "{body}");
            }
            assert_eq!(get(&url, path, Some("canary-token")).await.0, 200, "{path}");
        }
        assert_eq!(get(&url, "/readyz", None).await.0, 503);
    }

    #[tokio::test]
    async fn metrics_tell_process_and_build() {
        let (_admin, url, _stop) = serve(None).await;
        let (status, body) = get(&url, "/metrics", None).await;
        assert_eq!(status, 200);
        for name in ["process_resident_memory_bytes", "larder_uptime_seconds", "larder_build_info"]
        {
            assert!(body.contains(&format!("\n{name}")), "{name} in {body}");
        }
    }

    #[tokio::test]
    async fn an_unknown_path_is_not_found() {
        let (_admin, url, _stop) = serve(None).await;
        assert_eq!(get(&url, "/v2/status", None).await.0, 404);
    }
}
