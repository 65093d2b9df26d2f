//! Running programs: quietly, watched line by line, or for their output.
//!
//! Invariant: an error names the whole command line, so that it can be repeated by hand.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Cargo, at the root of the repository: the one that runs this task.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root());
    command
}

/// Runs a command with our own output; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs a command and gives its standard output; its complaints are part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}\n{}", output.status, said.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown} did not print text"))
}

/// Runs a command, passes its standard output on and shows each line to `watch`. True if the
/// command succeeded.
pub(crate) fn watched(command: &mut Command, mut watch: impl FnMut(&str)) -> Result<bool> {
    let shown = shown(command);
    println!("$ {shown}");
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start {shown}"))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("cannot read what {shown} prints"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            watch(&line);
        }
    }
    Ok(child.wait()?.success())
}

/// Whether a program is there and answers to these arguments.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    let quiet =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
