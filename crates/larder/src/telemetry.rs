//! Logging: tracing to stderr, as text or JSON.
//!
//! Architecture invariant: whatever level is asked for, foreign crates log at `info` at most, those
//! that handle requests' headers at `warn` at most, and s3s never. At `debug` and `trace` they print
//! headers, canonical requests and expected signatures, which are as good as secrets.

use crate::cli::{Log, LogFormat};
use anyhow::Context as _;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// Crates that see credentials, signatures or whole headers.
const WIRE_CRATES: [&str; 9] =
    ["aws_", "aws-", "hyper", "h2", "http", "rustls", "tokio_rustls", "tower", "axum"];

/// Sends the log lines of this process to stderr. Called once.
///
/// # Errors
///
/// When the level is none, or telemetry was started before.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    subscriber(log, std::io::stderr)?.try_init().context("starting telemetry")
}

fn subscriber<W>(log: &Log, writer: W) -> anyhow::Result<Box<dyn Subscriber + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let wanted = EnvFilter::builder().parse(&log.level).with_context(|| {
        format!("--log-level {:?} is neither a level nor directives", log.level)
    })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let registry = tracing_subscriber::registry().with(wanted).with(filter_fn(discreet));
    Ok(Box::new(registry.with(layer)))
}

/// Whether the line can be shown at all.
fn discreet(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= most_verbose(metadata.target())
}

fn most_verbose(target: &str) -> LevelFilter {
    if target == "larder" || target.starts_with("larder_") || target.starts_with("larder::") {
        LevelFilter::TRACE
    } else if target.starts_with("s3s") {
        LevelFilter::OFF
    } else if WIRE_CRATES.iter().any(|name| target.starts_with(name)) {
        LevelFilter::WARN
    } else {
        LevelFilter::INFO
    }
}

#[cfg(test)]
mod tests {
    use super::subscriber;
    use crate::cli::{Log, LogFormat};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What `emit` logs under that level.
    fn logged(level: &str, format: LogFormat, emit: fn()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = Log { format, level: level.to_owned() };
        let subscriber = subscriber(&log, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, emit);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn emit() {
        tracing::trace!(target: "larder_engine::pin", "own trace");
        tracing::info!(target: "larder", "own info");
        tracing::info!(target: "foyer", "foyer info");
        tracing::debug!(target: "foyer", "canary");
        tracing::error!(target: "s3s::ops::signature", "canary expected signature");
        tracing::trace!(target: "s3s", "canary");
        tracing::debug!(target: "aws_sigv4::http_request::sign", "canary canonical request");
        tracing::info!(target: "aws_smithy_runtime::client", "canary");
        tracing::trace!(target: "hyper::proto::h1", "canary header");
        tracing::debug!(target: "h2::codec::framed_write", "canary frame");
        tracing::trace!(target: "rustls::client", "canary");
    }

    #[test]
    fn nothing_of_the_wire_is_logged_even_when_asked_for() {
        for level in ["trace", "trace,s3s=trace,s3s::ops::signature=trace,aws_sigv4=trace,h2=trace"]
        {
            let lines = logged(level, LogFormat::Text, emit);
            assert!(!lines.contains("canary"), "{level}: {lines}");
            assert!(lines.contains("own trace") && lines.contains("foyer info"), "{lines}");
        }
    }

    #[test]
    fn the_level_is_kept() {
        let lines = logged("info", LogFormat::Text, emit);
        assert!(lines.contains("own info") && !lines.contains("own trace"), "{lines}");
    }

    #[test]
    fn json_lines_are_json_objects() {
        let lines = logged("info", LogFormat::Json, || tracing::info!(dataset = "d", "line"));
        let line: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
        assert_eq!(line["message"], "line");
        assert_eq!(line["dataset"], "d");
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        let log = Log { format: LogFormat::Text, level: "a=b=c".to_owned() };
        assert!(subscriber(&log, std::io::stderr).is_err());
    }
}
