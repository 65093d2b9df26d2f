//! Programs that Go builds from its modules.
//!
//! Versity's gateway is the tests' second origin because it is the only S3 server at hand that is
//! not ours, checks signatures, knows versions, tags, grants and multipart uploads, and is there in
//! about two minutes: s3s-fs (cargo) ignores conditions and has no versions, garage (cargo) takes
//! twenty minutes, and Debian 12's radosgw is from 2021 and needs eighteen seconds to start.

use crate::command::{answers, output};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// The gateway, and its version.
pub(super) const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// Builds the gateway into the environment's `bin`.
pub(super) fn versitygw(home: &Path) -> Result<()> {
    ensure!(answers("go", &["version"]), "go is missing; install Go 1.25 or newer");
    let mut command = Command::new("go");
    command.args(["install", "-trimpath", "-ldflags=-s -w", VERSITYGW]);
    output(command.env("GOBIN", home.join("bin"))).map(drop)
}
