//! No circle of modules within a crate is larger than a few files: who wants to change one of its files has to have all of
//! them in mind.

#![allow(clippy::unwrap_used)]

use house::LAYERS;
use house::modules::Modules;
use std::collections::BTreeMap;

/// A parent with its parts, two that know each other: nobody minds.
const FILES_MAX: usize = 3;

/// Circles that were larger when the rule was made, as numbers of files by crate, the largest first. They may only shrink: where one
/// does, its number here follows.
const LARGER: &[(&str, &[usize])] = &[("pg", &[12])];

#[test]
fn circles_of_modules_are_small() {
    let allowed: BTreeMap<&str, &[usize]> = LARGER.iter().copied().collect();
    let mut problems = Vec::new();
    for layer in LAYERS {
        let mut circles = Modules::of(layer.name).circles();
        circles.retain(|c| c.len() > FILES_MAX);
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        let allowed = allowed.get(layer.name).copied().unwrap_or_default();
        if sizes == allowed {
            continue;
        }
        let grown = sizes
            .iter()
            .enumerate()
            .any(|(i, n)| allowed.get(i).is_none_or(|a| n > a));
        let what = if grown {
            "larger circles than"
        } else {
            "smaller circles, put them here in place of"
        };
        problems.push(format!("{}: {what} {allowed:?}: {sizes:?}", layer.name));
        for files in circles.iter().filter(|_| grown) {
            let names: Vec<_> = files.iter().map(|f| f.to_string_lossy()).collect();
            problems.push(format!("  {}", names.join("\n  ")));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
