//! The rules of the repository as tests, so that `cargo test` holds them without `cargo xtask`.

use xtask::tidy::{arrows, sources};

#[test]
fn every_file_keeps_the_rules() {
    let breaches = sources::check(&xtask::root()).unwrap();
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_crate_arrows_are_those_of_the_design() {
    let graph = arrows::load().unwrap();
    assert!(graph.direct.contains_key("larder-model"), "cargo metadata names no larder-model");
    let breaches = arrows::check(&graph);
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}
