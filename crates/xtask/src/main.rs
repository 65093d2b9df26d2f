//! `cargo xtask`: the tasks of development, from a clean clone, without a shell script.
//!
//! Not here: what a task does; each has a module of the library beside this file.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::{bench, suite, tidy, tools};

/// Development tasks of Larder.
#[derive(Parser)]
#[command(name = "cargo xtask", after_help = "Example: cargo xtask test")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the default tier of tests, or with --slow the rest.
    #[command(after_help = "Example: cargo xtask test --slow")]
    Test(suite::Options),
    /// Measure: builds `larder` in release and runs one program of benches/.
    #[command(after_help = "Example: cargo xtask bench http -- --rounds 5")]
    Bench(bench::Options),
    /// Check the rules of the repository that no compiler knows.
    Tidy,
    /// Install what the tests need beside cargo into target/tools.
    Tools,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Test(options) => suite::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Tidy => tidy::run(),
        Task::Tools => tools::install().map(|tools| println!("{}", tools.display())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
