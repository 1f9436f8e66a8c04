//! What must be absent from the crates' code. Comments and test code do not count: a module behind `#[cfg(test)]`,
//! in the file or in a file of its own, is left out.

use house::source::{all, of_crate};
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

/// `dev/run-tests` runs test programs, and nothing runs examples in documentation: none is there to rot.
#[test]
fn examples_in_documentation_are_text() {
    let mut problems = Vec::new();
    for source in all() {
        let mut inside = false;
        for (i, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
            let Some(language) = doc.and_then(|d| d.trim().strip_prefix("```")) else {
                continue;
            };
            inside = !inside;
            if inside && language != "text" {
                problems.push(format!("{}:{}: not ```text", source.path.display(), i + 1));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
