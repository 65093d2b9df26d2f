//! The S3 front of Larder: connections and their limits, the request guard, signatures, grants, the
//! S3 operations and their error answers.
//!
//! What is not here: any cache, any origin. The gateway asks its [`Reads`] port, which
//! `larder_engine::Engine` implements, and holds a [`larder_model::Permit`] whenever it does.
//!
//! Architecture invariant: this is the only crate that knows s3s and server-side hyper, and no
//! request reaches the port before the guard and the signature check have passed it.

mod body;
mod bucket;
mod fault;
mod gateway;
mod guard;
mod host;
mod id;
mod keys;
mod linger;
mod list;
mod metrics;
mod object;
mod operation;
mod pass;
mod query;
mod reads;
mod refusal;
mod rules;
mod server;
mod tls;
mod upload;
mod wire;
mod xml;

pub use gateway::{Gateway, GatewayConfig};
pub use keys::KeyRing;
pub use operation::{Operation, Target, parse_target};
pub use query::Query;
pub use reads::Reads;
pub use rules::Rules;
pub use server::{Drained, Listeners, bind_tcp, bind_unix};
pub use tls::{Tls, TlsError};

/// Filter directives (as `tracing_subscriber::EnvFilter` reads them) that every subscriber of the
/// process must end its own with.
///
/// s3s logs the *expected* signature of a refused request at debug, whole requests at debug, and
/// every failed operation, 404 included, at error: it is silenced, since the gateway logs each
/// answer itself. The HTTP and TLS libraries dump headers, and with them presigned signatures, at
/// debug and trace.
pub const LOG_DIRECTIVES: &str =
    "s3s=off,h2=warn,hyper=warn,hyper_util=warn,rustls=warn,tokio_rustls=warn";
