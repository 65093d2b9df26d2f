//! No secret, and no signature that we would have taken, is ever in a log.

use super::support::{Form, Node, SECRET};
use larder_gateway::LOG_DIRECTIVES;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_secret_is_logged_at_trace() {
    let captured = Captured::default();
    let filter = EnvFilter::new(format!("trace,{LOG_DIRECTIVES}"));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(captured.clone()).finish();
    // The one test of this binary that sets it: whatever the others log is searched as well.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let node = Node::start().await;
    let mut signatures = Vec::new();
    let mut ids = Vec::new();
    for form in [Form::Header, Form::Presigned, Form::None] {
        for path in ["/data/k", "/data/missing", "/data/cut", "/closed/k", "/data?list-type=2"] {
            let ask = node.get(path).form(form);
            let text = String::from_utf8(ask.to_bytes()).unwrap();
            let signature = text.split("Signature=").nth(1).map(|rest| rest[..64].to_owned());
            let reply = ask.send().await;
            ids.push(reply.header("x-amz-request-id").unwrap().to_owned());
            // What we would have taken, for a request that was then changed.
            let wrong = node.get(path).form(form).late_query("&response-expires=1").send().await;
            assert!(wrong.status >= 400);
            signatures.extend(signature);
        }
    }
    let log = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains(SECRET) && !log.contains("other-secret"), "a secret is in the log");
    for signature in &signatures {
        assert!(!log.contains(signature.as_str()), "a signature is in the log");
    }
    for id in ids {
        assert!(log.contains(&id), "each answer is logged under its id");
    }
    let metrics = super::objects::prometheus_text(&node);
    assert!(!metrics.contains(SECRET));
}
