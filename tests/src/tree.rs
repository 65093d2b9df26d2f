//! Real trees of files: the Rust toolchain's own HTML documentation where it is installed, else
//! what Python brings; and comparing two trees byte by byte.

use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of a part of a real tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Copies `wanted` files of a real tree, spread over the whole of it, into `to`.
pub fn copy_real(wanted: usize, to: &Path) -> Result<Copied> {
    let sources = sources()?;
    let mut files = Vec::new();
    for source in &sources {
        walk(source, source, &mut files)?;
    }
    files.sort();
    files.dedup_by(|a, b| a.1 == b.1);
    ensure!(files.len() >= wanted, "{sources:?} hold {} files, {wanted} wanted", files.len());
    let mut copied = Copied::default();
    for index in 0..wanted {
        let (source, relative) = &files[index * files.len() / wanted];
        let target = to.join(relative);
        fs::create_dir_all(target.parent().context("a file is in a folder")?)?;
        copied.bytes += fs::copy(source.join(relative), &target)
            .with_context(|| format!("cannot copy to {}", target.display()))?;
        copied.files += 1;
    }
    Ok(copied)
}

/// An error that shows the first differences, unless the trees are the same.
pub fn assert_same(left: &Path, right: &Path) -> Result<()> {
    let output = Command::new("diff").arg("-rq").args([left, right]).output()?;
    if !output.status.success() || !output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stdout);
        let first: Vec<&str> = said.lines().take(10).collect();
        bail!("{} differences, such as\n{}", said.lines().count(), first.join("\n"));
    }
    Ok(())
}

/// The roots of the real trees, the first that holds enough by itself or all of Python's.
fn sources() -> Result<Vec<PathBuf>> {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output();
    if let Ok(output) = rustc
        && let Ok(sysroot) = String::from_utf8(output.stdout)
    {
        let documentation = Path::new(sysroot.trim()).join("share/doc/rust/html");
        if documentation.is_dir() {
            return Ok(vec![documentation]);
        }
    }
    let script =
        "import sysconfig; p = sysconfig.get_paths(); print(p['stdlib']); print(p['purelib'])";
    let output = Command::new(tools::program("python")?).args(["-c", script]).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let folders: Vec<PathBuf> = printed.lines().map(PathBuf::from).collect();
    ensure!(!folders.is_empty(), "python tells no folders of its libraries");
    Ok(folders)
}

/// Every plain file below `dir` as (root, path from the root). What a running interpreter writes is
/// left out, since it may change while it is copied.
fn walk(root: &Path, dir: &Path, files: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && entry.file_name() != "__pycache__" {
            walk(root, &path, files)?;
        } else if kind.is_file() && path.to_str().is_some() {
            files.push((root.to_owned(), path.strip_prefix(root)?.to_owned()));
        }
    }
    Ok(())
}
