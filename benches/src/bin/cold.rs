//! `cargo xtask bench cold`: cold GETs behind a delaying forwarder.

use std::process::ExitCode;

use clap::Parser;
use larder_benches::{cold, process, report::Verdicts};

/// Measure cold GETs: first byte, throughput and origin requests. Exit code 1 means that a bar was missed.
#[derive(Parser)]
struct Arguments {
    /// Rounds of the large object; the small one has three times as many.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    process::conclude(tokio::select! {
        verdicts = measure(arguments.rounds) => verdicts,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    })
}

async fn measure(rounds: usize) -> anyhow::Result<Verdicts> {
    let dir = process::work_dir()?;
    cold::run(rounds, dir.path()).await
}
