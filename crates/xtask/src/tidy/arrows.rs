//! The crate arrows of the design: which of our crates may depend on which, and which foreign
//! technology each alone may know. Read from `cargo metadata`.
//!
//! Invariant: what is not allowed here is a breach, so a new crate has to be entered.

use crate::command::{cargo, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Which of our crates a crate may build on. Development dependencies are free.
const ARROWS: [(&str, &[&str]); 8] = [
    ("larder-model", &[]),
    ("larder-engine", &["larder-model"]),
    ("larder-origin", &["larder-model"]),
    ("larder-store", &["larder-model"]),
    ("larder-policy", &["larder-model"]),
    ("larder-gateway", &["larder-model", "larder-engine"]),
    (
        "larder",
        &[
            "larder-model",
            "larder-engine",
            "larder-origin",
            "larder-store",
            "larder-policy",
            "larder-gateway",
        ],
    ),
    ("xtask", &[]),
];

/// Packages that drive the whole from outside and may use what they need.
const FREE: [&str; 2] = ["larder-tests", "larder-benches"];

/// Foreign crates that exactly one of ours may name.
const OWNERS: [(&str, &str); 13] = [
    ("aws-config", "larder-origin"),
    ("aws-sdk-s3", "larder-origin"),
    ("aws-sigv4", "larder-origin"),
    ("foyer", "larder-store"),
    ("redb", "larder-store"),
    ("s3s", "larder-gateway"),
    ("wasmtime", "larder-policy"),
    ("chitchat", "larder-cluster"),
    ("fuser", "larder-fuse"),
    ("figment", "larder"),
    ("clap", "larder"),
    ("axum", "larder"),
    ("tracing-subscriber", "larder"),
];

/// What the pure crates must not reach, not even through others, so that their tests stay quick.
const FOREIGN: [&str; 9] =
    ["aws-sdk-s3", "s3s", "foyer", "redb", "wasmtime", "hyper", "rustls", "fuser", "chitchat"];

/// The workspace's packages: what each names, and what each reaches through its dependencies.
#[derive(Default)]
pub struct Graph {
    /// Package name to the names of its direct dependencies, development ones left out.
    pub direct: BTreeMap<String, BTreeSet<String>>,
    /// Package name to every package that it is built from, development dependencies left out.
    pub reached: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the graph from `cargo metadata`.
pub fn load() -> Result<Graph> {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    let all: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let names: BTreeMap<&str, &str> = array(&all["packages"])
        .filter_map(|p| Some((text_of(&p["id"])?, text_of(&p["name"])?)))
        .collect();
    let nodes: BTreeMap<&str, Vec<&str>> = array(&all["resolve"]["nodes"])
        .filter_map(|node| Some((text_of(&node["id"])?, dependencies(node))))
        .collect();
    let mut graph = Graph::default();
    for id in array(&all["workspace_members"]).filter_map(text_of) {
        let name = names.get(id).context("a workspace member has no package")?;
        let called = |ids: &[&str]| {
            ids.iter().filter_map(|id| names.get(id)).map(|name| (*name).to_owned()).collect()
        };
        let direct = nodes.get(id).map(Vec::as_slice).unwrap_or_default();
        let reached: Vec<&str> = closure(id, &nodes).into_iter().collect();
        graph.direct.insert((*name).to_owned(), called(direct));
        graph.reached.insert((*name).to_owned(), called(&reached));
    }
    Ok(graph)
}

/// The breaches of the arrows in a graph.
#[must_use]
pub fn check(graph: &Graph) -> Vec<String> {
    let mut breaches = Vec::new();
    let arrows = BTreeMap::from(ARROWS);
    for (package, direct) in &graph.direct {
        if FREE.contains(&package.as_str()) {
            continue;
        }
        let Some(allowed) = arrows.get(package.as_str()) else {
            breaches.push(format!("{package}: not in the table of crate arrows; enter it"));
            continue;
        };
        for ours in direct.iter().filter(|name| graph.direct.contains_key(*name)) {
            if !allowed.contains(&ours.as_str()) {
                breaches
                    .push(format!("{package} must not depend on {ours} (see crates/README.md)"));
            }
        }
        for (foreign, owner) in OWNERS {
            let excused = package == "xtask" && foreign == "clap";
            if package != owner && !excused && direct.contains(foreign) {
                breaches.push(format!("{package} must not know {foreign}: only {owner} does"));
            }
        }
    }
    for pure in ["larder-model", "larder-engine"] {
        let reached = graph.reached.get(pure);
        for foreign in FOREIGN {
            if reached.is_some_and(|reached| reached.contains(foreign)) {
                breaches.push(format!("{pure} must not reach {foreign}, not even through others"));
            }
        }
    }
    breaches
}

/// The packages that a node is built from, development dependencies left out.
fn dependencies(node: &Value) -> Vec<&str> {
    let built = |dependency: &&Value| {
        array(&dependency["dep_kinds"]).any(|kind| text_of(&kind["kind"]) != Some("dev"))
    };
    array(&node["deps"]).filter(built).filter_map(|d| text_of(&d["pkg"])).collect()
}

fn closure<'a>(root: &'a str, nodes: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left = vec![root];
    while let Some(id) = left.pop() {
        for next in nodes.get(id).into_iter().flatten() {
            if seen.insert(*next) {
                left.push(next);
            }
        }
    }
    seen
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str()
}

#[cfg(test)]
mod tests {
    use super::{Graph, check};

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let mut graph = Graph::default();
        for (package, names) in edges {
            let names = names.iter().map(|name| (*name).to_owned());
            graph.direct.insert((*package).to_owned(), names.clone().collect());
            graph.reached.insert((*package).to_owned(), names.collect());
        }
        graph
    }

    fn breach(edges: &[(&str, &[&str])]) -> String {
        check(&graph(edges)).join("\n")
    }

    #[test]
    fn the_arrows_of_the_design_are_allowed() {
        let edges: [(&str, &[&str]); 4] = [
            ("larder-model", &["bytes"]),
            ("larder-engine", &["larder-model", "tokio"]),
            ("larder-origin", &["larder-model", "aws-sdk-s3"]),
            ("larder-tests", &["aws-sigv4", "larder-model"]),
        ];
        assert_eq!(breach(&edges), "");
    }

    #[test]
    fn adapters_do_not_see_one_another() {
        let edges: [(&str, &[&str]); 2] =
            [("larder-store", &["larder-model", "larder-origin"]), ("larder-origin", &[])];
        assert!(breach(&edges).contains("larder-store must not depend on larder-origin"));
    }

    #[test]
    fn a_foreign_crate_has_one_owner() {
        assert!(breach(&[("larder-engine", &["foyer"])]).contains("only larder-store does"));
        assert!(breach(&[("larder", &["s3s"])]).contains("only larder-gateway does"));
        assert_eq!(breach(&[("xtask", &["clap"])]), "");
    }

    #[test]
    fn a_crate_that_the_table_does_not_name_is_a_breach() {
        assert!(breach(&[("larder-extra", &[])]).contains("enter it"));
    }

    #[test]
    fn the_pure_crates_reach_no_foreign_technology() {
        let mut graph = graph(&[("larder-engine", &["larder-model"])]);
        graph.reached.entry("larder-engine".to_owned()).or_default().insert("hyper".to_owned());
        assert!(check(&graph).join("\n").contains("must not reach hyper"));
    }
}
