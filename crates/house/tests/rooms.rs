//! Rooms of a crate import only what the table lets them, and its files stand in no large circle. Test code does not
//! count.

#![allow(clippy::unwrap_used)]

mod source;

use house::rooms::{CIRCLE_FILES_MAX, ROOMS, crates, room_of};
use source::{code, module_dir, rust_files, source_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module of a crate, by its path, and the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// `commands::osd::read` for `commands/osd/read.rs`; "" for the root.
fn module_of(root: &Path, file: &Path) -> String {
    let path = file.strip_prefix(root).unwrap().with_extension("");
    let mut parts: Vec<&str> = path.iter().map(|p| p.to_str().unwrap()).collect();
    if ["lib", "mod"].contains(parts.last().unwrap()) {
        parts.pop();
    }
    parts.join("::")
}

/// The paths of one `use` tree: `a::{b, c::{d, self}}` is `a::b`, `a::c::d`, `a::c::self`.
fn paths_of(tree: &str, before: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        if !tree.is_empty() {
            out.push(format!("{before}{tree}"));
        }
        return;
    };
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start) = (0, 0);
    for (i, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths_of(&list[start..i], &format!("{before}{head}"), out);
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// What follows `word` wherever it stands alone in `text`, as far as a path goes.
fn paths_from<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let alone = |at: usize| !text[..at].ends_with(in_path);
    let found = text.match_indices(word).filter(|(at, _)| alone(*at));
    found
        .map(|(at, _)| &text[at..])
        .map(|t| &t[..t.find(|c| !in_path(c)).unwrap_or(t.len())])
        // The head of a tree.
        .filter(|path| !path.ends_with(':'))
        .collect()
}

/// A path as written in `module`, from the crate's root; None leads out of the crate, or to a child by its bare name.
fn absolute(module: &str, path: &str) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").filter(|p| !p.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    match parts.next()? {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop();
            while parts.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        _ => return None,
    }
    at.extend(parts.filter(|p| *p != "self"));
    Some(at.join("::"))
}

/// The paths that the code of one file names: in `use`, in expressions, and of modules declared in it.
fn named(module: &str, text: &str) -> BTreeSet<String> {
    let mut paths = Vec::new();
    let mut children = Vec::new();
    for statement in text.split(';') {
        let last = |word: &str| statement.rsplit_once(word).map(|(_, after)| after);
        if let Some(tree) = last("use ") {
            paths_of(tree, "", &mut paths);
        }
        if let Some(child) = last("mod ").filter(|c| c.chars().all(|c| c.is_alphanumeric() || c == '_')) {
            children.push(child);
        }
    }
    for word in ["crate::", "super::", "self::"] {
        paths.extend(paths_from(text, word).iter().map(|p| p.to_string()));
    }
    let mut out: BTreeSet<String> = paths.iter().filter_map(|p| absolute(module, p)).collect();
    for child in children {
        let used = paths_from(text, &format!("{child}::"));
        out.extend(
            used.iter()
                .filter_map(|p| absolute(module, &format!("self::{p}"))),
        );
    }
    out
}

fn imports_of(krate: &str) -> Imports {
    let root = source_of(krate);
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let mut texts = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for file in &files {
        let (lines, test_modules) = code(&fs::read_to_string(file).unwrap());
        tests.extend(test_modules.into_iter().map(|m| module_dir(file).join(m)));
        let text: String = lines.iter().map(|(_, line)| format!("\n{line}")).collect();
        texts.insert(file, text);
    }
    texts.retain(|file, _| !tests.iter().any(|t| file.with_extension("").starts_with(t)));
    let modules: BTreeSet<String> = texts.keys().map(|f| module_of(&root, f)).collect();
    let mut out = Imports::new();
    for (file, text) in texts {
        let module = module_of(&root, file);
        let known = |path: &String| {
            let ends = path.match_indices("::").map(|(at, _)| &path[..at]);
            let mut longest_first: Vec<&str> = ends.chain([path.as_str()]).collect();
            longest_first.reverse();
            let found = longest_first.into_iter().find(|p| modules.contains(*p));
            found.unwrap_or_default().to_string()
        };
        let mut to: BTreeSet<String> = named(&module, &text).iter().map(known).collect();
        to.remove(&module);
        out.insert(module, to);
    }
    out
}

#[test]
fn paths_are_found() {
    let text = "\nmod part;\nuse crate::a::{b, c::{self, D}};\npub use super::e::F;\nfn f() { part::g(crate::h::i()); other::j(); }";
    let have = named("x::y", text);
    let want = ["a::b", "a::c", "a::c::D", "h::i", "x::e::F", "x::y::part::g"];
    let have: Vec<&str> = have.iter().map(String::as_str).collect();
    assert_eq!(have, want);
}

#[test]
fn rooms_import_only_what_they_may() {
    let mut problems = Vec::new();
    for krate in crates() {
        for (module, imports) in imports_of(krate) {
            let Some(room) = room_of(krate, &module) else {
                continue;
            };
            for import in imports {
                let name = room_of(krate, &import).map_or("", |r| r.name);
                if name != room.name && !room.imports.contains(&name) {
                    problems.push(format!("{krate}: {module} must not import {import}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_room_is_there() {
    for krate in crates() {
        let modules = imports_of(krate);
        let gone = ROOMS
            .iter()
            .filter(|r| r.krate == krate && !modules.contains_key(r.name));
        let gone: Vec<&str> = gone.map(|r| r.name).collect();
        assert!(gone.is_empty(), "{krate} has no {gone:?}");
    }
}

/// Every module that `from` leads to.
fn reached<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(module) = todo.pop() {
        let next = imports.get(module).into_iter().flatten().map(String::as_str);
        todo.extend(next.filter(|m| seen.insert(*m)));
    }
    seen
}

#[test]
fn no_large_circles() {
    for krate in crates() {
        let imports = imports_of(krate);
        let reach: BTreeMap<&str, BTreeSet<&str>> = imports
            .keys()
            .map(|m| (m.as_str(), reached(&imports, m)))
            .collect();
        for (module, to) in &reach {
            let circle: Vec<&str> = to.iter().copied().filter(|m| reach[m].contains(module)).collect();
            assert!(
                circle.len() <= CIRCLE_FILES_MAX,
                "{krate}: a circle of {circle:?}"
            );
        }
    }
}
