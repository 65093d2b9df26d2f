//! Virtual environments, and pip in them.

use crate::command::{answers, output};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The oldest Python that the pinned packages run on.
const PYTHON: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

/// Makes a virtual environment. Debian splits `ensurepip` off into python3-venv; without it, an
/// environment without pip is made and filled by a pip from outside, or `virtualenv` makes it.
pub(super) fn environment(home: &Path) -> Result<()> {
    let python = python()?;
    let make = |arguments: &[&str]| {
        let _ = fs::remove_dir_all(home);
        output(Command::new(python).args(arguments).arg(home))
    };
    let Err(first) = make(&["-m", "venv"]) else { return Ok(()) };
    if answers(python, &["-m", "pip", "--version"])
        && make(&["-m", "venv", "--without-pip"]).is_ok()
    {
        return Ok(());
    }
    if make(&["-m", "virtualenv"]).is_ok() {
        return Ok(());
    }
    bail!("{python} can make no virtual environment; install python3-venv\n{first:#}")
}

/// Installs packages into an environment.
pub(super) fn packages(home: &Path, wanted: &[&str]) -> Result<()> {
    let inside = home.join("bin/python");
    let has_pip = answers(&inside.to_string_lossy(), &["-m", "pip", "--version"]);
    // A pip from outside installs into another interpreter's environment with `--python`.
    let mut command = Command::new(if has_pip { inside.as_path() } else { Path::new(python()?) });
    command.args(["-m", "pip"]);
    if !has_pip {
        command.arg("--python").arg(&inside);
    }
    command.args(["install", "--quiet", "--no-input"]).args(wanted);
    output(&mut command).map(drop)
}

fn python() -> Result<&'static str> {
    let found = ["python3", "python3.13", "python3.12", "python3.11"]
        .into_iter()
        .find(|name| answers(name, &["-c", PYTHON]));
    found.context("no Python of at least 3.11 found; install python3 (Debian 12 has 3.11)")
}
