//! Every library that ends up in the program has a licence that `deny.toml` allows. (cargo-deny reads the same
//! list; this test needs nothing installed.)

#![allow(clippy::unwrap_used)]

mod metadata;

/// The quoted strings of `allow = [...]` under `[licenses]`.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deny.toml")).unwrap();
    let section = text.split("[licenses]").nth(1).unwrap();
    let list = section
        .split("allow = [")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// Whether an SPDX expression is satisfied: `OR` (or `/`) needs one side, `AND` both.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ")
        .replace(" WITH ", "_WITH_");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&tokens, &mut at, allowed)
}

fn either(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut ok = both(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        ok |= both(tokens, at, allowed);
    }
    ok
}

fn both(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut ok = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(tokens, at, allowed);
    }
    ok
}

fn one(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let token = tokens[*at];
    *at += 1;
    if token != "(" {
        return allowed.iter().any(|a| a.replace(" WITH ", "_WITH_") == token);
    }
    let ok = either(tokens, at, allowed);
    *at += 1; // the closing one
    ok
}

#[test]
fn expressions() {
    let allowed = [
        "MIT".to_string(),
        "ISC".to_string(),
        "Apache-2.0 WITH LLVM-exception".to_string(),
    ];
    for (expression, want) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("(GPL-3.0 OR AGPL-3.0) AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
    ] {
        assert_eq!(satisfied(expression, &allowed), want, "{expression}");
    }
}

#[test]
fn licences_of_all_libraries() {
    let allowed = allowed();
    let mut problems = Vec::new();
    for package in metadata::packages(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]) {
        let licence = package["license"].as_str().unwrap_or("");
        if licence.is_empty() || !satisfied(licence, &allowed) {
            problems.push(format!("{} {}: {licence:?}", package["name"], package["version"]));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
