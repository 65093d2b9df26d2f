//! The block store (memory and SSD, over foyer) and the catalog of objects (over redb).
//!
//! What is not here: any decision about what stays. The engine says what is resident; this crate
//! keeps it, and decides memory versus SSD only.
//!
//! Architecture invariant: this is the only crate that knows foyer and redb. No byte leaves it that
//! did not pass the checksums of its block and the comparison with the key that was asked for, and
//! every failure is a miss and a counter.

mod catalog;
mod directory;
mod error;
mod metrics;
mod pool;
mod store;

pub use catalog::RedbCatalog;
pub use error::StoreError;
pub use pool::layout::{buffer_bytes, device_bytes, region_files};
pub use store::{HybridStore, StoreConfig};
