//! Programs from Debian's packages: found on PATH, else unpacked without being installed.

use crate::command::{answers, output};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of rclone. Its version is the machine's Debian's business.
pub(super) const RCLONE: &str = "rclone";

/// Puts rclone into the environment's `bin`.
pub(super) fn rclone(home: &Path) -> Result<()> {
    let program = match on_path(RCLONE) {
        Some(program) => program,
        None => unpacked(RCLONE, &home.join("debian"))?.join("usr/bin/rclone"),
    };
    output(Command::new(&program).arg("version")).context("the unpacked rclone does not run")?;
    symlink(program, home.join("bin/rclone")).context("cannot link rclone")
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Downloads a package and unpacks it below `dir`; gives that folder.
fn unpacked(package: &str, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let download =
        || output(Command::new("apt-get").args(["download", package]).current_dir(dir)).map(drop);
    if download().is_err() {
        // A machine that was just made has no lists of packages.
        let _ = answers("apt-get", &["update", "--quiet"]);
        download()?;
    }
    let package = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get downloaded no package")?;
    output(Command::new("dpkg").arg("-x").arg(package).arg(dir))?;
    Ok(dir.to_owned())
}
