//! What is wrong with a configuration, each problem with its key and the place it was written at.
//!
//! Not here: finding problems. Invariant: a problem repeats no value of a key that may be a secret.

use std::collections::BTreeMap;
use std::fmt;

/// A key as the path to it: `["dataset", "imagenet", "origin"]`.
pub(crate) type KeyPath = Vec<String>;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The key; empty for the whole configuration.
    pub(crate) key: KeyPath,
    /// What is wrong and what to do.
    pub(crate) message: String,
    /// Where it was written: `larder.toml:12`, or the variable or flag.
    pub(crate) place: Option<String>,
}

impl Problem {
    pub(crate) fn new(key: &[&str], message: impl Into<String>) -> Self {
        let key = key.iter().map(|part| (*part).to_owned()).collect();
        Self { key, message: message.into(), place: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key.join("."))?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong. Never empty.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            writeln!(f, "error: {problem}")?;
        }
        let count = self.0.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        write!(f, "{count} {noun} in the configuration; nothing was started")
    }
}

impl std::error::Error for Problems {}

/// Where each key was written. Later layers hide earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<KeyPath, String>);

impl Places {
    pub(crate) fn set(&mut self, key: KeyPath, place: String) {
        self.0.insert(key, place);
    }

    /// The place of the key, or of the nearest table around it.
    pub(crate) fn of(&self, key: &[String]) -> Option<&str> {
        (1..=key.len()).rev().find_map(|len| self.0.get(&key[..len])).map(String::as_str)
    }
}

/// The candidate that `word` was probably meant to be.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let close = |candidate: &'a str| {
        let distance = strsim::damerau_levenshtein(word, candidate);
        (distance <= 1 + candidate.len() / 4).then_some((distance, candidate))
    };
    candidates.into_iter().filter_map(close).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::{Places, Problem, nearest};

    #[test]
    fn a_slip_finds_the_key_that_was_meant() {
        let keys = ["origin", "bucket", "prefix", "freshness"];
        for (word, meant) in [("orign", "origin"), ("bukcet", "bucket"), ("freshnes", "freshness")]
        {
            assert_eq!(nearest(word, keys), Some(meant));
        }
        assert_eq!(nearest("colour", keys), None);
    }

    #[test]
    fn a_problem_names_place_key_and_reason() {
        let mut problem = Problem::new(&["cache", "memory"], "too much");
        assert_eq!(problem.to_string(), "cache.memory: too much");
        problem.place = Some("larder.toml:3".into());
        assert_eq!(problem.to_string(), "larder.toml:3: cache.memory: too much");
    }

    #[test]
    fn a_missing_key_is_placed_at_the_table_that_should_have_it() {
        let mut places = Places::default();
        places.set(vec!["dataset".into(), "a".into()], "f:4".into());
        let key = ["dataset", "a", "origin"].map(String::from);
        assert_eq!(places.of(&key), Some("f:4"));
        assert_eq!(places.of(&["cache".to_owned()]), None);
    }
}
