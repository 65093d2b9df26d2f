//! The layers of the configuration, merged: file, then environment, then flags.
//!
//! Not here: what a key means. Invariant: every key of the result knows where it was written, and
//! every value that does not fit its key is reported, not only the first.

use super::problem::{KeyPath, Places, Problem, nearest};
use super::shape::Shape;
use figment::error::{Actual, Kind};
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// What variables of the environment begin with.
const PREFIX: &str = "LARDER_";

/// The sections whose second level are names, and so keep their case.
const NAMED: [&str; 3] = ["origin", "dataset", "key"];

/// What the configuration is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    /// How messages call the file.
    pub(crate) file_name: String,
    /// The file's text.
    pub(crate) text: String,
    /// The environment, all of it.
    pub(crate) env: BTreeMap<String, String>,
    /// `key=value`, from flags.
    pub(crate) flags: Vec<(String, String)>,
}

/// The merged layers in their shape, with what could not be fitted.
pub(crate) struct Merged {
    pub(crate) shape: Shape,
    pub(crate) places: Places,
    pub(crate) problems: Vec<Problem>,
}

impl Layers {
    /// Merges the layers. Keys that do not fit are left out and reported.
    pub(crate) fn merge(&self) -> Merged {
        let mut places = Places::default();
        let mut problems = Vec::new();
        let mut file = Figment::new();
        match DeTable::parse(&self.text) {
            Ok(table) => {
                self.place_table(table.get_ref(), &mut Vec::new(), &mut places);
                file = file.merge(Toml::string(&self.text));
            }
            Err(error) => problems.push(self.syntax(&error)),
        }
        let known = file.extract::<Dict>().unwrap_or_default();
        let env = Overlay(self.env_keys(&known, &mut places));
        let flags = Overlay(self.flag_keys(&mut places));
        let tree = match file.merge(env).merge(flags).extract::<Dict>() {
            Ok(tree) => tree,
            Err(error) => {
                problems.push(Problem::new(&[], message(&error.kind, &[])));
                Dict::new()
            }
        };
        let shape = fit(tree, &mut problems);
        Merged { shape, places, problems }
    }

    /// Whether there is anything beside a file: a node can be run from the environment alone.
    pub(crate) fn says_something(&self) -> bool {
        !self.flags.is_empty() || self.env.keys().any(|name| our_key(name).is_some())
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let mut problem = Problem::new(&[], format!("not valid TOML: {}", error.message()));
        let line = error.span().map(|span| self.line(span.start));
        problem.place = Some(line.unwrap_or_else(|| self.file_name.clone()));
        problem
    }

    fn line(&self, at: usize) -> String {
        let before = self.text.as_bytes().iter().take(at);
        format!("{}:{}", self.file_name, 1 + before.filter(|byte| **byte == b'\n').count())
    }

    fn place_table(&self, table: &DeTable<'_>, path: &mut KeyPath, places: &mut Places) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            places.set(path.clone(), self.line(key.span().start));
            match value.get_ref() {
                DeValue::Table(inner) => self.place_table(inner, path, places),
                DeValue::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        path.push(index.to_string());
                        places.set(path.clone(), self.line(item.span().start));
                        path.pop();
                    }
                }
                _ => {}
            }
            path.pop();
        }
    }

    fn env_keys(&self, known: &Dict, places: &mut Places) -> Vec<(KeyPath, Value)> {
        let mut found = Vec::new();
        for (name, text) in &self.env {
            let Some(rest) = our_key(name) else { continue };
            let path = env_path(rest, known);
            places.set(path.clone(), format!("environment variable {name}"));
            found.push((path, parse(text)));
        }
        found
    }

    fn flag_keys(&self, places: &mut Places) -> Vec<(KeyPath, Value)> {
        let mut found = Vec::new();
        for (key, text) in &self.flags {
            let path: KeyPath = key.split('.').map(str::to_owned).collect();
            places.set(path.clone(), "command line".to_owned());
            found.push((path, parse(text)));
        }
        found
    }
}

/// What is behind the prefix of a variable with `__` in it. One without is not a key of ours:
/// Kubernetes sets `LARDER_SERVICE_HOST` and its like for a service called larder.
fn our_key(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|rest| rest.contains("__"))
}

/// Figment's own grammar for variables: TOML's scalars and arrays, and bare words as strings.
fn parse(text: &str) -> Value {
    text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {})
}

/// `DATASET__ImageNet__ORIGIN` is `dataset.ImageNet.origin`: keys are in lower case, and a name is
/// the one in the file that differs in case only, else taken as it is.
fn env_path(rest: &str, known: &Dict) -> KeyPath {
    let mut path: KeyPath = rest.split("__").map(str::to_ascii_lowercase).collect();
    let verbatim = rest.split("__").nth(1).unwrap_or_default();
    if NAMED.contains(&path[0].as_str()) {
        let names = known.get(&path[0]).and_then(Value::as_dict).into_iter().flat_map(Dict::keys);
        let same = names.into_iter().find(|name| name.eq_ignore_ascii_case(verbatim));
        path[1] = same.map_or_else(|| verbatim.to_owned(), Clone::clone);
    }
    path
}

/// A layer of single keys.
struct Overlay(Vec<(KeyPath, Value)>);

impl Provider for Overlay {
    fn metadata(&self) -> Metadata {
        Metadata::named("overrides")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut tree = Dict::new();
        for (path, value) in &self.0 {
            insert(&mut tree, path, value.clone());
        }
        Ok(Profile::Default.collect(tree))
    }
}

fn insert(tree: &mut Dict, path: &[String], value: Value) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        tree.insert(first.clone(), value);
        return;
    }
    let empty = || Value::from(Dict::new());
    let inner = tree.entry(first.clone()).or_insert_with(empty);
    if inner.as_dict().is_none() {
        *inner = empty();
    }
    if let Value::Dict(_, inner) = inner {
        insert(inner, rest, value);
    }
}

/// Fits the tree into the shape. What does not fit is taken out and reported until the rest does.
fn fit(mut tree: Dict, problems: &mut Vec<Problem>) -> Shape {
    loop {
        let error = match Value::from(tree.clone()).deserialize::<Shape>() {
            Ok(shape) => return shape,
            Err(error) => error,
        };
        let key: Vec<&str> = error.path.iter().map(String::as_str).collect();
        problems.push(Problem::new(&key, message(&error.kind, &key)));
        if !remove(&mut tree, &error.path) {
            return Shape::default();
        }
    }
}

/// Takes out the key, or what is nearest around it.
fn remove(tree: &mut Dict, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    if !rest.is_empty()
        && let Some(Value::Dict(_, inner)) = tree.get_mut(first)
        && remove(inner, rest)
    {
        return true;
    }
    tree.remove(first).is_some()
}

/// What figment found, in our words and without the value, which may be a secret.
fn message(kind: &Kind, key: &[&str]) -> String {
    match kind {
        Kind::UnknownField(field, expected) => {
            let hint = match nearest(field, expected.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known here: {}", expected.join(", ")),
            };
            let noun = if key.len() == 1 { "section or key" } else { "key" };
            format!("unknown {noun}; {hint}")
        }
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("expected {}, found {}", plain(expected), noun(actual))
        }
        Kind::Message(message) => message.clone(),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "out of range".to_owned(),
        other => other.to_string(),
    }
}

/// serde's names of types, as a reader of the documentation knows them.
fn plain(expected: &str) -> &str {
    match expected {
        "u32" | "u64" => "a whole number that is not negative",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

fn noun(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) => "a number",
        Actual::Signed(_) => "a number",
        Actual::Float(_) => "a fraction",
        Actual::Char(_) | Actual::Str(_) => "a string",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::{Layers, Merged};

    fn merge(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Merged {
        let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
        let layers = Layers {
            file_name: "larder.toml".into(),
            text: text.into(),
            env: env.iter().map(own).collect(),
            flags: flags.iter().map(own).collect(),
        };
        let mut merged = layers.merge();
        for problem in &mut merged.problems {
            if problem.place.is_none() {
                problem.place = merged.places.of(&problem.key).map(str::to_owned);
            }
        }
        merged
    }

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> =
            merge(text, &[], &[]).problems.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_key_that_was_meant() {
        check(
            "[listen]\ns3 = \"a\"\n\n[dataset.x]\norigni = \"o\"\n",
            &["larder.toml:5: dataset.x.origni: unknown key; did you mean `origin`?"],
        );
        check(
            "[lisen]\ns3 = \"a\"\n",
            &["larder.toml:1: lisen: unknown section or key; did you mean `listen`?"],
        );
        check(
            "[admin]\ncolour = 1\n",
            &["larder.toml:2: admin.colour: unknown key; known here: token"],
        );
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        check(
            "[limits]\nmemory = true\nconnections = -1\ngrace = 30\n[cache]\nmemory = \"lots\"\nmem = 1\n",
            &[
                "larder.toml:7: cache.mem: unknown key; known here: memory, disk",
                "larder.toml:6: cache.memory: \"lots\" is not a byte size; write for example \"512MiB\" or a number of bytes",
                "larder.toml:3: limits.connections: expected a whole number that is not negative, found a number",
                "larder.toml:4: limits.grace: expected a duration with its unit, such as \"30s\" or \"500ms\", found a number",
                "larder.toml:2: limits.memory: expected a byte size such as \"512MiB\", or a number of bytes, found a boolean",
            ],
        );
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let merged = merge("[listen]\ns3 = \n", &[], &[]);
        assert_eq!(merged.problems.len(), 1);
        let shown = merged.problems[0].to_string();
        assert!(shown.starts_with("larder.toml:2: not valid TOML: "), "{shown}");
    }

    #[test]
    fn a_literal_secret_is_refused_and_not_repeated() {
        for value in ["\"canary-secret\"", "12345678", "[\"canary-secret\"]", "{ a = \"canary\" }"]
        {
            let merged = merge(&format!("[key.A]\nsecret = {value}\n"), &[], &[]);
            let shown = merged.problems[0].to_string();
            assert!(shown.starts_with("larder.toml:2: key.A.secret: "), "{shown}");
            assert!(!shown.contains("canary") && !shown.contains("1234"), "{shown}");
        }
    }

    #[test]
    fn the_environment_overrides_the_file_and_flags_override_both() {
        let text = "[listen]\ns3 = \"file\"\nadmin = \"file\"\n[limits]\nconnections = 1\n";
        let env = [("LARDER_LISTEN__S3", "env"), ("LARDER_LIMITS__CONNECTIONS", "7")];
        let merged = merge(text, &env, &[("listen.s3", "flag")]);
        assert_eq!(merged.shape.listen.s3.as_deref(), Some("flag"));
        assert_eq!(merged.shape.listen.admin.as_deref(), Some("file"));
        assert_eq!(merged.shape.limits.connections, Some(7));
    }

    #[test]
    fn the_environment_reaches_nested_keys_names_and_lists() {
        let text = "[dataset.ImageNet]\norigin = \"a\"\n";
        let env = [
            ("LARDER_DATASET__IMAGENET__ORIGIN", "b"),
            ("LARDER_DATASET__ImageNet__QUOTA__HIGH", "0.9"),
            ("LARDER_CACHE__DISK__CAPACITY", "2GiB"),
            ("LARDER_KEY__AkId__ALLOW", "[ImageNet:read, \"b:read\"]"),
        ];
        let shape = merge(text, &env, &[]).shape;
        assert_eq!(shape.dataset["ImageNet"].origin.as_deref(), Some("b"));
        assert_eq!(shape.dataset["ImageNet"].quota.as_ref().unwrap().high, Some(0.9));
        assert_eq!(shape.cache.disk.unwrap().capacity.unwrap().0, 2 << 30);
        assert_eq!(shape.key["AkId"].allow.as_ref().unwrap(), &["ImageNet:read", "b:read"]);
    }

    #[test]
    fn a_problem_of_the_environment_names_the_variable() {
        let merged = merge("", &[("LARDER_LISTEN__S4", "x")], &[]);
        assert_eq!(
            merged.problems[0].to_string(),
            "environment variable LARDER_LISTEN__S4: listen.s4: unknown key; did you mean `s3`?"
        );
    }

    #[test]
    fn variables_that_kubernetes_sets_for_a_service_are_not_ours() {
        let env = [("LARDER_SERVICE_HOST", "10.0.0.1"), ("LARDER_PORT", "tcp://10.0.0.1:9000")];
        assert!(merge("", &env, &[]).problems.is_empty());
    }
}
