//! What must be absent from the crates' code. Comments and test code do not count: a module behind `#[cfg(test)]`,
//! in the file or in a file of its own, is left out.

#![allow(clippy::unwrap_used)]

mod source;

use house::{ABSENT, LAYERS};
use source::{code, module_dir, rust_files, source_of};
use std::collections::BTreeSet;
use std::fs;

#[test]
fn code_leaves_tests_out() {
    let text = "use a;\n// std::fs::x\n#[cfg(test)]\nmod far;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    std::fs::read();\n}\nfn g() {}\n";
    let (lines, modules) = code(text);
    let kept: Vec<_> = lines
        .iter()
        .map(|l| l.1.as_str())
        .filter(|l| !l.is_empty())
        .collect();
    assert_eq!(kept, ["use a;", "fn f() {}", "fn g() {}"]);
    assert_eq!(modules, ["far"]);
}

#[test]
fn what_must_be_absent_is() {
    let mut problems = Vec::new();
    for layer in LAYERS.iter().filter(|l| l.name != "house") {
        let mut files = Vec::new();
        rust_files(&source_of(layer.name), &mut files);
        let mut tests = BTreeSet::new();
        let mut found = Vec::new();
        for file in &files {
            let (lines, test_modules) = code(&fs::read_to_string(file).unwrap());
            tests.extend(test_modules.into_iter().map(|m| module_dir(file).join(m)));
            for rule in ABSENT.iter().filter(|r| !r.except.contains(&layer.name)) {
                let hits = lines.iter().filter(|(_, text)| text.contains(rule.text));
                found.extend(hits.map(|(number, _)| (file, *number, rule)));
            }
        }
        for (file, number, rule) in found {
            let stem = file.with_extension("");
            if tests.iter().any(|t| stem == *t || stem.starts_with(t)) {
                continue;
            }
            problems.push(format!(
                "{}:{number}: {} (instead: {})",
                file.display(),
                rule.text,
                rule.instead
            ));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Every file says first what it is.
#[test]
fn files_open_with_their_purpose() {
    let mut problems = Vec::new();
    for layer in LAYERS {
        let mut files = Vec::new();
        rust_files(&source_of(layer.name), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            if !text.starts_with("//!") {
                problems.push(format!("{} does not begin with //!", file.display()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
