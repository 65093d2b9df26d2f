//! `cargo xtask tidy`: the rules of the repository that no compiler knows. They run as tests too,
//! so `cargo test` alone holds them.
//!
//! Invariant: a breach names the file (and line) and says what to do instead.

pub mod arrows;
pub mod sources;

use anyhow::{Result, bail};

/// Checks every rule; the breaches are in the error.
pub fn run() -> Result<()> {
    let mut breaches = sources::check(&crate::root())?;
    breaches.extend(arrows::check(&arrows::load()?));
    if breaches.is_empty() {
        println!("tidy: every rule holds");
        return Ok(());
    }
    bail!("{} breaches of the repository's rules:\n{}", breaches.len(), breaches.join("\n"))
}
