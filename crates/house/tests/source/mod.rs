//! The sources of the crates, as the tests read them: without comments and without test code.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

pub fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
        .join("src")
}

pub fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            rust_files(&entry, out);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push(entry);
        }
    }
}

/// Where the modules of `file` live: beside `lib.rs`, `main.rs`, `mod.rs`; else in the folder of its name.
pub fn module_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap();
    match file.file_stem().unwrap().to_str().unwrap() {
        "lib" | "main" | "mod" => dir.to_path_buf(),
        stem => dir.join(stem),
    }
}

/// The code of one file without comments and inline test modules, as (line number, text); and the test modules
/// that it declares as files.
pub fn code(text: &str) -> (Vec<(usize, String)>, Vec<String>) {
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
