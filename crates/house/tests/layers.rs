//! Imports go downwards only, and libraries stay where they belong: read from `cargo metadata`.

#![allow(clippy::unwrap_used)]

mod metadata;

use house::{LAYERS, LIBRARIES, PURE_MAX, layer_of};
use serde_json::Value;

fn workspace() -> Vec<Value> {
    metadata::packages(&["--no-deps"])
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// Names of what a crate imports outside its tests.
fn imports(package: &Value) -> impl Iterator<Item = &str> {
    let all = package["dependencies"].as_array().unwrap();
    all.iter().filter(|d| d["kind"].as_str() != Some("dev")).map(name)
}

fn check(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_table_lists_every_crate() {
    let packages = workspace();
    let unlisted = packages.iter().map(name).filter(|n| layer_of(n).is_none());
    let gone = LAYERS
        .iter()
        .map(|l| l.name)
        .filter(|n| !packages.iter().any(|p| name(p) == *n));
    check(
        unlisted
            .map(|n| format!("{n} has no layer"))
            .chain(gone.map(|n| format!("{n} is gone")))
            .collect(),
    );
}

#[test]
fn imports_go_downwards() {
    let mut problems = Vec::new();
    for package in &workspace() {
        let Some(importer) = layer_of(name(package)) else {
            continue;
        };
        for import in imports(package).filter_map(layer_of) {
            let beside = import.height == importer.height && importer.beside.contains(&import.name);
            if import.height >= importer.height && !beside {
                problems.push(format!("{} must not import {}", importer.name, import.name));
            }
        }
    }
    check(problems);
}

#[test]
fn libraries_stay_where_they_belong() {
    let mut problems = Vec::new();
    for package in &workspace() {
        for import in imports(package) {
            let Some(library) = LIBRARIES.iter().find(|l| l.name == import) else {
                continue;
            };
            if !library.users.contains(&name(package)) {
                problems.push(format!("{} must not import {import}", name(package)));
            }
        }
    }
    check(problems);
}

#[test]
fn pure_layers_use_no_library_that_does_more_than_compute() {
    // Cryptography on bytes is computation; its random numbers are not used there (see `absent`).
    let computes = ["aws-lc-rs"];
    for library in LIBRARIES.iter().filter(|l| !computes.contains(&l.name)) {
        for user in library.users.iter().filter_map(|u| layer_of(u)) {
            assert!(
                user.height > PURE_MAX,
                "{} in the pure crate {}",
                library.name,
                user.name
            );
        }
    }
}
