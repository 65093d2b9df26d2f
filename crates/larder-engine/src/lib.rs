//! The data path of Larder on ports alone: pin, plan, fill, verify, stream; residency and quotas.
//!
//! What is not here: S3, HTTP, disks, databases, Wasm. Origins, the store, the catalog, policies
//! and time come in through the traits of `larder-model`; of tokio, only runtime, sync and time
//! are used.
//!
//! Architecture invariants: one response is of one version; no byte is served without a permit; no
//! byte is fetched from the origin while it is resident or on its way.

mod api;
mod approach;
mod arriving;
mod bypass;
mod engine;
mod fence;
mod fill;
mod flying;
mod ledger;
mod listing;
mod meters;
mod pass;
mod pin;
mod pool;
mod reader;
mod scribe;
mod seed;
mod shelf;
mod steward;
mod tasks;

pub use api::{Answer, Body, Changes, Head, PassRequest, Passed, ReadError, ReadRequest, Source};
pub use engine::{DatasetStatus, Engine, OpenError, Parts};
