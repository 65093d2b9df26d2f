//! Bare hyper: serves the hot objects from memory and computes all others; the origin of every bench.

use clap::Parser;
use larder_benches::hot::all_keys;
use larder_benches::origin::{Held, hold, serve};
use tokio::net::TcpListener;

/// A small S3 origin for the benches. It listens on a free port and prints `listening: ADDRESS`.
#[derive(Parser)]
struct Arguments {
    /// Compute every object while it is sent, and hold none in memory.
    #[arg(long)]
    computed: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let held = if arguments.computed { Held::new() } else { hold(all_keys()) };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening: {}", listener.local_addr()?);
    serve(listener, held).await?;
    Ok(())
}
