//! The tasks behind `cargo xtask`, a library so that `tests/` can run the tidy rules as tests.
//!
//! Invariant: nothing here is installed outside the target folder, and no task needs a shell.

pub mod bench;
mod command;
pub mod suite;
mod tally;
pub mod tidy;
pub mod tools;

use std::path::{Path, PathBuf};

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, or `target` at the root.
#[must_use]
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}
