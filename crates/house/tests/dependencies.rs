//! What a `Cargo.toml` names is used: by the product, or by tests and then among what only tests need.

#![allow(clippy::unwrap_used)]

mod metadata;

use house::source::of_crate;
use serde_json::Value;

fn workspace() -> Vec<Value> {
    metadata::packages(&["--no-deps"])
}

/// Whether code names the crate: `name::` that is no part of a longer path, or `use name;`, `use name as`.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&code[..at], &code[at + name.len()..]);
        let word = |c: char| c.is_alphanumeric() || c == '_';
        if before.ends_with(word) || behind.starts_with(word) {
            return false;
        }
        let root = before.strip_suffix("::").unwrap_or(before);
        let is_root = root == before || !root.ends_with(|c| word(c) || c == '>');
        let imported = ["use ", "extern crate "].iter().any(|k| before.ends_with(k))
            && (behind.starts_with(';') || behind.starts_with(" as "));
        imported || is_root && behind.trim_start().starts_with("::")
    })
}

#[test]
fn names_of_crates() {
    for (code, want) in [
        ("use a_b::c;", true),
        ("::a_b::c()", true),
        ("use a_b as d;", true),
        ("self::a_b::c", false),
        ("x.a_b(1)", false),
        ("xa_b::c", false),
        ("a_b: u8", false),
    ] {
        assert_eq!(names(code, "a_b"), want, "{code}");
    }
}

#[test]
fn dependencies_are_used() {
    let mut problems = Vec::new();
    for package in workspace() {
        let krate = package["name"].as_str().unwrap();
        let build =
            std::path::Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("build.rs");
        let build = std::fs::read_to_string(build).unwrap_or_default();
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["rename"]
                .as_str()
                .or(dependency["name"].as_str())
                .unwrap();
            let ident = name.replace('-', "_");
            let product = of_crate(krate).any(|s| names(&s.product, &ident));
            let anywhere = || of_crate(krate).any(|s| names(&s.code, &ident));
            let problem = match dependency["kind"].as_str() {
                Some("build") => (!names(&build, &ident)).then_some("is not used by build.rs"),
                Some("dev") => (!anywhere()).then_some("is not used by tests"),
                _ if product => None,
                _ if anywhere() => Some("is used by tests alone: move it to [dev-dependencies]"),
                _ => Some("is not used"),
            };
            problems.extend(problem.map(|p| format!("{krate}: {name} {p}")));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
