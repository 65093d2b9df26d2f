//! `cargo xtask bench`: the measuring programs of `benches/`, always on the release build.
//!
//! Not here: what is measured; `larder-benches` has one binary for each.

use crate::command;
use anyhow::Result;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// The program of benches/ to run: http, cold, …
    name: String,
    /// What to pass on to it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds `larder` and every program of benches/ in release (a measuring program starts others beside
/// it), then runs the one that was named.
pub fn run(options: &Options) -> Result<()> {
    command::run(&mut command::cargo(&[
        "build",
        "--release",
        "-p",
        "larder",
        "-p",
        "larder-benches",
    ]))?;
    let program = ["run", "--release", "-p", "larder-benches", "--bin", &options.name, "--"];
    command::run(command::cargo(&program).args(&options.arguments))
}
