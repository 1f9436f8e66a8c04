//! No circle of modules within a crate is larger than a few files: who wants to change one of its files has to have all of
//! them in mind.

#![allow(clippy::unwrap_used)]

use house::LAYERS;
use house::modules::Modules;

/// A parent with its parts, two that know each other: nobody minds.
const FILES_MAX: usize = 3;

#[test]
fn circles_of_modules_are_small() {
    let mut problems = Vec::new();
    for layer in LAYERS {
        let circles = Modules::of(layer.name).circles();
        for files in circles.iter().filter(|c| c.len() > FILES_MAX) {
            let names: Vec<_> = files.iter().map(|f| f.to_string_lossy()).collect();
            problems.push(format!(
                "{}: {} files:\n  {}",
                layer.name,
                files.len(),
                names.join("\n  ")
            ));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
