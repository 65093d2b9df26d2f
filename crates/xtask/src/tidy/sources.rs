//! The rules that a file can break by itself: length, header, unfinished work, foreign paths.
//!
//! Invariant: only files that git tracks, or would, are looked at.

use crate::command::output;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The longest source file, in lines.
const MAX_LINES: usize = 600;

/// Longer files, each with the reason.
const LONGER: [(&str, &str); 1] =
    [("crates/larder-origin/tests/s3.rs", "a table of cases against one scripted double")];

/// Marks of unfinished work and of tests that do not run. Written in two halves, so that this file
/// does not break its own rule.
const UNFINISHED: [(&str, &str); 7] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("to", "do!("),
    ("unimple", "mented!("),
    ("#[ig", "nore"),
    ("unreach", "able!()"),
];

/// Paths of one machine, and hosts that only one network has.
const MACHINES: [(&str, &str); 4] =
    [("/root/", "."), ("/ho", "me/"), ("/Use", "rs/"), ("/work/", "main")];

/// Hosts of package registries, and mirrors: which one is used is the machine's business.
const REGISTRIES: [(&str, &str); 5] = [
    ("crates", ".io/"),
    ("static.crates", ".io"),
    ("pypi", ".org"),
    ("files.python", "hosted.org"),
    ("deb.deb", "ian.org"),
];

/// Extensions of files that people write.
const WRITTEN: [&str; 6] = ["rs", "toml", "md", "sh", "py", "yaml"];

/// The breaches in every file under `root`.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let files = output(Command::new("git").args(arguments).current_dir(root))?;
    let mut breaches = Vec::new();
    for file in files.lines().filter(|file| root.join(file).is_file()) {
        let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
        let script = file == ".ci/run";
        if !script && !extension.is_some_and(|extension| WRITTEN.contains(&extension)) {
            continue;
        }
        let text =
            fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        breaches.extend(file_breaches(file, &text));
    }
    Ok(breaches)
}

/// The breaches in one file, named by its path from the root.
#[must_use]
pub fn file_breaches(file: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    if file.ends_with(".rs") {
        breaches.extend(shape_breaches(file, text));
    }
    if file.ends_with("Cargo.toml") && file != "Cargo.toml" && !inherits_lints(text) {
        breaches.push(format!("{file}: add `[lints] workspace = true`"));
    }
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        let has = |(a, b): &(&str, &str)| line.contains(&format!("{a}{b}"));
        if file.ends_with(".rs") && UNFINISHED.iter().any(has) {
            breaches.push(format!("{file}:{number}: unfinished work; finish it or leave it out"));
        }
        if MACHINES.iter().any(has) {
            breaches.push(format!("{file}:{number}: the path of one machine"));
        }
        if REGISTRIES.iter().any(has) {
            breaches
                .push(format!("{file}:{number}: the host of a registry; leave it to the machine"));
        }
    }
    breaches
}

fn shape_breaches(file: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    if !text.starts_with("//!") {
        breaches.push(format!("{file}: begin with `//!`: what this is, what not, its invariant"));
    }
    if file.ends_with("/mod.rs") {
        breaches.push(format!("{file}: name it after its folder and put it beside"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES && !LONGER.iter().any(|(name, _)| *name == file) {
        breaches.push(format!("{file}: {lines} lines; split it along a seam that has a name"));
    }
    breaches
}

fn inherits_lints(manifest: &str) -> bool {
    let parsed: Option<toml::Table> = manifest.parse().ok();
    let lints = parsed.as_ref().and_then(|table| table.get("lints")?.get("workspace")?.as_bool());
    lints == Some(true)
}

#[cfg(test)]
mod tests {
    use super::{UNFINISHED, check, file_breaches};
    use std::process::Command;

    #[test]
    fn a_good_file_has_no_breach() {
        assert_eq!(file_breaches("crates/a/src/lib.rs", "//! What it is.\n"), Vec::<String>::new());
        let manifest = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        assert_eq!(file_breaches("crates/a/Cargo.toml", manifest), Vec::<String>::new());
    }

    #[test]
    fn each_rule_of_a_source_file_is_noticed() {
        let count = |file: &str, text: &str| file_breaches(file, text).len();
        assert_eq!(count("a.rs", "fn main() {}\n"), 1, "no header");
        assert_eq!(count("a/mod.rs", "//! x\n"), 1, "mod.rs");
        assert_eq!(count("a.rs", &format!("//! x\n{}", "\n".repeat(600))), 1, "too long");
        for (a, b) in UNFINISHED {
            assert_eq!(count("a.rs", &format!("//! x\n{a}{b}\n")), 1, "{a}{b}");
        }
        assert_eq!(count("a.md", &format!("see {}{}x\n", "/ho", "me/")), 1, "machine path");
        assert_eq!(count("a.toml", &format!("url = \"{}{}\"\n", "pypi", ".org")), 1, "registry");
        assert_eq!(count("crates/a/Cargo.toml", "[package]\n"), 1, "lints");
    }

    #[test]
    fn untracked_files_are_looked_at_and_excluded_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            Command::new("git").args(arguments).current_dir(dir.path()).output().unwrap()
        };
        git(&["init", "-q"]);
        std::fs::write(dir.path().join(".gitignore"), "out.rs\n").unwrap();
        std::fs::write(dir.path().join("out.rs"), "no header").unwrap();
        std::fs::write(dir.path().join("in.rs"), "no header").unwrap();
        let breaches = check(dir.path()).unwrap();
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        assert!(breaches[0].starts_with("in.rs"), "{breaches:?}");
    }
}
