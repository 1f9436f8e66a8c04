//! Files that documents and comments name are there.

#![allow(clippy::unwrap_used)]

use house::source::{all, files, root};
use std::path::Path;

/// Says what was, and may name what is gone.
const HISTORY: [&str; 1] = ["CHANGELOG.md"];
/// Where documents are looked for, beside the root itself.
const FOLDERS: [&str; 12] = [
    ".",
    "crates",
    "dev",
    "docs",
    "fuzz",
    "lab",
    "monitoring",
    "packaging",
    "tests",
    "vectors",
    ".ci",
    ".github",
];
/// Paths that begin so are names of files here.
const BEGINNINGS: [&str; 9] = [
    "crates/",
    "docs/",
    "decisions/",
    "tests/",
    "dev/",
    "vectors/",
    "fuzz/",
    "packaging/",
    "monitoring/",
];
/// So do they end, but for notes of `decisions/`, which may be named by their number.
const EXTENSIONS: [&str; 8] = [".md", ".rs", ".toml", ".py", ".txt", ".tsv", ".json", ".jsonl"];

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./".contains(c)
}

/// What looks like the name of a file of ours in a text, with the numbers of their lines.
fn named(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(|c| !is_path(c)) {
            let word = word.trim_end_matches(['.', '/']).trim_start_matches("./");
            let ours = BEGINNINGS.iter().any(|b| word.starts_with(b));
            let decision = word.starts_with("decisions/") && word.len() > "decisions/".len();
            if ours && (decision || EXTENSIONS.iter().any(|e| word.ends_with(e))) {
                out.push((number + 1, word));
            }
        }
    }
    out
}

/// Whether it is there: from the root, beside who names it, or for a decision by its number.
fn exists(root: &Path, from: &Path, name: &str) -> bool {
    let beside = from.parent().unwrap_or(root);
    if let Some(number) = name.strip_prefix("decisions/") {
        let mut notes = std::fs::read_dir(root.join("docs/decisions")).unwrap();
        let begins = |e: std::io::Result<std::fs::DirEntry>| {
            let note = e.unwrap().file_name();
            note.to_string_lossy().starts_with(number)
        };
        return notes.any(begins);
    }
    [root, beside].iter().any(|dir| dir.join(name).exists())
        || beside
            .ancestors()
            .any(|dir| dir.starts_with(root) && dir.join(name).exists())
}

#[test]
fn names_in_texts() {
    let text = "see `docs/internals/disk-format.md`, (crates/pg/src/pg.rs).\nand docs/decisions, decisions/0007: ./dev/x.py";
    assert_eq!(
        named(text),
        [
            (1, "docs/internals/disk-format.md"),
            (1, "crates/pg/src/pg.rs"),
            (2, "decisions/0007"),
            (2, "dev/x.py")
        ]
    );
}

#[test]
fn what_is_named_is_there() {
    let root = root();
    let mut problems = Vec::new();
    let mut check = |from: &Path, text: &str| {
        for (line, name) in named(text) {
            if !exists(&root, from, name) {
                let from = from.strip_prefix(&root).unwrap_or(from).display();
                problems.push(format!("{from}:{line}: {name} is not there"));
            }
        }
    };
    for source in all().iter().filter(|s| s.krate != "house") {
        check(&root.join(&source.path), &source.comments);
    }
    for document in FOLDERS.iter().flat_map(|f| files(&root.join(f), &["md"])) {
        let history = document
            .file_name()
            .is_some_and(|n| HISTORY.iter().any(|h| n == *h));
        if !history {
            check(&document, &std::fs::read_to_string(&document).unwrap());
        }
    }
    problems.sort();
    problems.dedup();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
