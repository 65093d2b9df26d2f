//! Counting test results: the sums of cargo's `test result:` lines, and what each step took.

use std::time::{Duration, Instant};

/// Tests passed and failed, and the time of each step so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    steps: Vec<(String, Duration, bool)>,
}

impl Tally {
    /// Adds a line of cargo's output, if it is the result of a test program.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some((passed, failed)) = results(line) {
            self.passed += passed;
            self.failed += failed;
        }
    }

    /// Runs a step and keeps its time. A step that fails counts as one failed test, unless it has
    /// counted failed tests of its own.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut Self) -> anyhow::Result<()>) {
        println!("\n== {name}");
        let (before, started) = (self.failed, Instant::now());
        let done = work(self);
        if let Err(error) = &done {
            eprintln!("error: {name}: {error:#}");
            self.failed += u64::from(self.failed == before);
        }
        let ok = done.is_ok() && self.failed == before;
        self.steps.push((name.to_owned(), started.elapsed(), ok));
    }

    /// Whether nothing has failed.
    pub(crate) fn ok(&self) -> bool {
        self.failed == 0
    }

    /// Prints the times, and as the last line the sums that a script looks for.
    pub(crate) fn close(&self) {
        println!("\n== times");
        for (name, took, ok) in &self.steps {
            let outcome = if *ok { "" } else { "  FAILED" };
            println!("{:>8.1} s  {name}{outcome}", took.as_secs_f64());
        }
        println!("{} passed, {} failed", self.passed, self.failed);
    }
}

/// The numbers of `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn results(line: &str) -> Option<(u64, u64)> {
    let counts = line.trim_start().strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |what: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(what))?;
        part.strip_suffix(what)?.trim().parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::{Tally, results};

    #[test]
    fn the_results_of_several_programs_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 1 filtered out; fini",
        ] {
            tally.line(line);
        }
        assert_eq!((tally.passed, tally.failed), (7, 2));
    }

    #[test]
    fn a_step_that_fails_without_a_test_counts_as_one_failure() {
        let mut tally = Tally::default();
        tally.step("breaks", |_| anyhow::bail!("broken"));
        assert_eq!(tally.failed, 1);
        tally.step("counts its own", |tally| {
            tally.line("test result: FAILED. 0 passed; 2 failed; 0 ignored");
            anyhow::bail!("two tests failed")
        });
        assert_eq!(tally.failed, 3);
    }

    #[test]
    fn other_lines_are_no_results() {
        assert_eq!(results("test result_is_kept ... ok"), None);
        assert_eq!(results("test result: ok"), None);
        assert_eq!(results(""), None);
    }
}
