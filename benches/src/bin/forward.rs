//! The delaying forwarder by itself, to put distance before any origin by hand.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use larder_benches::forwarder::{Forwarder, Link};
use tokio::net::TcpListener;

/// Forward TCP connections with a round-trip time and a bandwidth, and print what passed on Ctrl-C.
///
/// Example: forward --upstream 127.0.0.1:9000 --listen 127.0.0.1:9100
#[derive(Parser)]
struct Arguments {
    /// Where to forward to.
    #[arg(long)]
    upstream: SocketAddr,
    /// Where to listen; port 0 takes any free one. The address is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The round-trip time in milliseconds.
    #[arg(long, default_value_t = 30)]
    round_trip_ms: u64,
    /// The bandwidth of one connection in each direction, in bytes per second.
    #[arg(long, default_value_t = 100_000_000)]
    rate: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind(arguments.listen).await?;
    let link = Link {
        round_trip: Duration::from_millis(arguments.round_trip_ms),
        bytes_per_second: arguments.rate,
    };
    let forwarder = Forwarder::start(listener, arguments.upstream, link)?;
    println!("listening: {}", forwarder.address());
    tokio::signal::ctrl_c().await?;
    let counts = forwarder.counts();
    println!("connections: {}", counts.connections);
    println!("requests: {}", counts.requests);
    println!("bytes to the origin: {}", counts.bytes_sent);
    println!("bytes to clients: {}", counts.bytes_received);
    for seen in forwarder.requests_for("") {
        println!("{} {} {}", seen.method, seen.target, seen.range.unwrap_or_default());
    }
    Ok(())
}
