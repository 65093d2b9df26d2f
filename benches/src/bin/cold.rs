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
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let dir = process::work_dir()?;
    let verdicts: Verdicts = tokio::select! {
        verdicts = cold::run(arguments.rounds, dir.path()) => verdicts?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    };
    print!("{verdicts}");
    Ok(ExitCode::from(u8::from(!verdicts.all_met())))
}
