//! `cargo xtask bench http`: hot GETs beside other servers, and GETs from the SSD beside direct reads.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use larder_benches::hot::{self, Rounds};
use larder_benches::report::Verdicts;
use larder_benches::{process, ssd};

/// Measure hot GETs and GETs from the SSD. Exit code 1 means that a bar was missed.
#[derive(Parser)]
struct Arguments {
    /// Measure only this section.
    #[arg(long)]
    only: Option<Section>,
    /// Measure only objects of this size in bytes; may be given several times.
    #[arg(long = "size")]
    sizes: Vec<u64>,
    /// Rounds of each size.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each server is asked in a round, in milliseconds.
    #[arg(long, default_value_t = 2500)]
    window_ms: u64,
    /// Connections of the load generator.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    Hot,
    Ssd,
}

// One thread: the load generator must leave the other processors to the servers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    process::conclude(tokio::select! {
        verdicts = measure(&arguments) => verdicts,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    })
}

async fn measure(arguments: &Arguments) -> Result<Verdicts> {
    let rounds = Rounds {
        count: arguments.rounds,
        window: Duration::from_millis(arguments.window_ms),
        connections: arguments.connections,
    };
    let mut verdicts = Verdicts::default();
    if arguments.only != Some(Section::Ssd) {
        let dir = process::work_dir()?;
        let tools = process::tools_dir()?;
        verdicts.join(hot::run(rounds, &arguments.sizes, dir.path(), &tools).await?);
    }
    if arguments.only != Some(Section::Hot) {
        let dir = process::work_dir()?;
        verdicts.join(ssd::run(rounds, &arguments.sizes, dir.path()).await?);
    }
    Ok(verdicts)
}
