//! What must be absent from the crates' code. Comments and test code do not count: a module behind `#[cfg(test)]`,
//! in the file or in a file of its own, is left out.

use house::source::of_crate;
use house::{ABSENT, LAYERS};

#[test]
fn what_must_be_absent_is() {
    let mut problems = Vec::new();
    for layer in LAYERS.iter().filter(|l| l.name != "house") {
        for rule in ABSENT.iter().filter(|r| !r.except.contains(&layer.name)) {
            for source in of_crate(layer.name) {
                let lines = source.product.lines().enumerate();
                let hits = lines.filter(|(_, line)| line.contains(rule.text));
                problems.extend(hits.map(|(i, _)| {
                    let path = source.path.display();
                    format!("{path}:{}: {} (instead: {})", i + 1, rule.text, rule.instead)
                }));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Every file says first what it is.
#[test]
fn files_open_with_their_purpose() {
    let mut problems = Vec::new();
    for layer in LAYERS {
        let sources = of_crate(layer.name).filter(|s| s.path.iter().nth(2).is_some_and(|f| f == "src"));
        for source in sources.filter(|s| !s.text.starts_with("//!")) {
            problems.push(format!("{} does not begin with //!", source.path.display()));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
