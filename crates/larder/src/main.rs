//! Larder's binary.
mod cli;
mod clock;
mod config;
mod embedded;
mod telemetry;
fn main() {}
