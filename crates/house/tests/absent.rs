//! What must be absent from the crates' code. Comments and test code do not count: a module behind `#[cfg(test)]`,
//! in the file or in a file of its own, is left out.

#![allow(clippy::unwrap_used)]

use house::{ABSENT, LAYERS};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
        .join("src")
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            rust_files(&entry, out);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push(entry);
        }
    }
}

/// Where the modules of `file` live: beside `lib.rs`, `main.rs`, `mod.rs`; else in the folder of its name.
fn module_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap();
    match file.file_stem().unwrap().to_str().unwrap() {
        "lib" | "main" | "mod" => dir.to_path_buf(),
        stem => dir.join(stem),
    }
}

/// The code of one file without comments and inline test modules, as (line number, text); and the test modules
/// that it declares as files.
fn code(text: &str) -> (Vec<(usize, String)>, Vec<String>) {
    let (mut lines, mut test_modules) = (Vec::new(), Vec::new());
    let (mut after_cfg_test, mut in_tests) = (false, false);
    for (i, line) in text.lines().enumerate() {
        if in_tests {
            // rustfmt closes a module at the start of a line.
            in_tests = line != "}";
            continue;
        }
        let code = line.split("//").next().unwrap().trim();
        if code.starts_with("#[cfg(") && code.contains("test") {
            after_cfg_test = true;
            continue;
        }
        if after_cfg_test && !code.starts_with("#[") && !code.is_empty() {
            after_cfg_test = false;
            let module = code.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            if let Some(name) = module.strip_prefix("mod ") {
                match name.strip_suffix(';') {
                    Some(name) => test_modules.push(name.to_string()),
                    None => in_tests = !name.ends_with('}'),
                }
                continue;
            }
        }
        lines.push((i + 1, code.to_string()));
    }
    (lines, test_modules)
}

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
