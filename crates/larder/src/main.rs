//! Larder's binary.
mod admin;
mod cli;
mod clock;
mod config;
mod embedded;
mod report;
mod rotate;
mod status;
mod telemetry;
fn main() {}
