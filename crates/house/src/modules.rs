//! Which module of a crate uses which: from the paths in its product code.
//!
//! Vocabulary: a *module* is a file. It *uses* the file in which the things are defined that its paths (`crate::a::B`,
//! `super::c`, the modules that it declares) lead to; re-exports are followed to their source, and are no use by
//! themselves. A *circle* is a set of files each of which uses, over others of the set, all of them.
//!
//! Not here: what macros expand to, methods called on a value whose type no path names.

use crate::source::{Source, close, of_crate, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Name = Vec<String>;

/// Re-exports lead over at most so many others.
const HOPS_MAX: usize = 8;

#[derive(Default)]
struct Module {
    file: Option<&'static Source>,
    /// Names that `use` brings in, and what they stand for.
    imports: BTreeMap<String, Name>,
    globs: Vec<Name>,
    /// Paths in the code.
    paths: Vec<Name>,
}

pub struct Modules(BTreeMap<Name, Module>);

/// The module that a file is: `src/a/b.rs` is `a`, `b`; `src/lib.rs` has no name.
fn name_of(path: &Path) -> Name {
    let inside = path.with_extension("");
    let mut parts: Name = inside
        .iter()
        .skip(3)
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|p| p == "mod") || ["lib", "main"].iter().any(|r| parts == [*r]) {
        parts.pop();
    }
    parts
}

impl Modules {
    pub fn of(krate: &str) -> Self {
        let mut all = BTreeMap::new();
        for file in of_crate(krate).filter(|s| !s.tests_only) {
            let module = Module {
                file: Some(file),
                ..Module::default()
            };
            all.insert(name_of(&file.path), module);
        }
        let mut modules = Self(all);
        let names: Vec<Name> = modules.0.keys().cloned().collect();
        for name in names {
            modules.read(&name);
        }
        modules
    }

    fn read(&mut self, name: &Name) {
        let Some(code) = self.0.get(name).and_then(|m| m.file).map(|f| f.product.as_str()) else {
            return;
        };
        let (mut imports, mut globs, mut paths) = (BTreeMap::new(), Vec::new(), Vec::new());
        for found in paths_in(code) {
            let Some(start) = self.start(name, &found.path) else {
                continue;
            };
            match found.kind {
                Kind::Glob { .. } => globs.push(start.clone()),
                Kind::Import { ref alias, .. } => drop(imports.insert(alias.clone(), start.clone())),
                Kind::Plain => {}
            }
            if !found.is_public() {
                paths.push(start);
            }
        }
        if let Some(module) = self.0.get_mut(name) {
            (module.imports, module.globs, module.paths) = (imports, globs, paths);
        }
    }

    /// A path as the file writes it, from the crate's root. None: it leads out of the crate.
    fn start(&self, at: &Name, path: &[String]) -> Option<Name> {
        let mut base = at.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                base.push(child.to_string());
                if !self.0.contains_key(&base) {
                    return None;
                }
                rest = &path[1..];
            }
        }
        base.extend(rest.iter().filter(|s| *s != "self").cloned());
        Some(base)
    }

    /// The module in which the thing is defined that a path from the root names.
    fn resolve(&self, path: &[String], hops: usize) -> Name {
        let mut module = Name::new();
        for (i, part) in path.iter().enumerate() {
            let mut child = module.clone();
            child.push(part.clone());
            if self.0.contains_key(&child) {
                module = child;
                continue;
            }
            let Some(here) = self.0.get(&module).filter(|_| hops > 0) else {
                break;
            };
            let rest = &path[i + 1..];
            if let Some(target) = here.imports.get(part) {
                let target: Name = target.iter().chain(rest).cloned().collect();
                return self.resolve(&target, hops - 1);
            }
            if self.defines(&module, part) {
                break;
            }
            for glob in here.globs.iter().filter(|g| **g != module) {
                let target: Name = glob.iter().chain(&path[i..]).cloned().collect();
                let found = self.resolve(&target, hops - 1);
                if self.defines(&found, part) || self.0.contains_key(&target) {
                    return found;
                }
            }
            break;
        }
        module
    }

    fn defines(&self, module: &Name, name: &str) -> bool {
        const KEYWORDS: [&str; 9] = [
            "struct",
            "enum",
            "fn",
            "trait",
            "type",
            "const",
            "static",
            "union",
            "macro_rules",
        ];
        let Some(code) = self.0.get(module).and_then(|m| m.file).map(|f| &f.product) else {
            return false;
        };
        let mut before = "";
        words(code).any(|word| {
            let hit = word == name && KEYWORDS.contains(&before);
            before = word;
            hit
        })
    }

    fn uses(&self) -> BTreeMap<&Name, BTreeSet<Name>> {
        let all = self.0.iter().map(|(name, module)| {
            let used = module.paths.iter().map(|p| self.resolve(p, HOPS_MAX));
            (name, used.filter(|u| u != name).collect())
        });
        all.collect()
    }

    /// Each module, as `a::b`, and those that it uses.
    pub fn by_path(&self) -> BTreeMap<String, BTreeSet<String>> {
        let path = |name: &Name| name.join("::");
        let all = self.uses().into_iter();
        all.map(|(name, used)| (path(name), used.iter().map(path).collect()))
            .collect()
    }

    /// The circles of more than one file, the largest first: the paths of their files.
    pub fn circles(&self) -> Vec<Vec<&'static Path>> {
        let uses = self.uses();
        let reach: BTreeMap<&Name, BTreeSet<&Name>> = uses.keys().map(|n| (*n, reached(&uses, n))).collect();
        let mut seen: BTreeSet<&Name> = BTreeSet::new();
        let mut out: Vec<Vec<&Path>> = Vec::new();
        for (name, reached) in &reach {
            if seen.contains(name) {
                continue;
            }
            let back = |n: &&&Name| reach.get(**n).is_some_and(|r| r.contains(name));
            let circle: Vec<&Name> = reached.iter().filter(back).copied().collect();
            if circle.len() > 1 {
                seen.extend(&circle);
                let path = |n: &&Name| self.0.get(*n)?.file.map(|f| f.path.as_path());
                out.push(circle.iter().filter_map(path).collect());
            }
        }
        out.sort_by_key(|c| std::cmp::Reverse(c.len()));
        out
    }
}

/// All that `from` uses, over others too.
fn reached<'a>(uses: &BTreeMap<&'a Name, BTreeSet<Name>>, from: &Name) -> BTreeSet<&'a Name> {
    let mut out = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        for used in uses.get(name).into_iter().flatten() {
            if let Some((known, _)) = uses.get_key_value(used)
                && out.insert(*known)
            {
                next.push(known);
            }
        }
    }
    out
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Plain,
    Import { alias: String, public: bool },
    Glob { public: bool },
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    path: Name,
    kind: Kind,
}

impl Found {
    fn is_public(&self) -> bool {
        matches!(
            self.kind,
            Kind::Import { public: true, .. } | Kind::Glob { public: true }
        )
    }
}

/// Every path of two or more parts in the code, and what `use` brings in.
fn paths_in(code: &str) -> Vec<Found> {
    let bytes = code.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let word = word_at(code, at);
        if word.is_empty() {
            at += 1;
            continue;
        }
        let end = at + word.len();
        if word == "use" && !code[..at].ends_with('.') {
            let stop = code[end..].find(';').map_or(code.len(), |i| i + end);
            let public = visible(&code[..at]);
            tree(code[end..stop].trim(), &[], public, &mut out);
            at = stop;
        } else if code[end..].starts_with("::") && !code[..at].ends_with("::") {
            let stop = path_end(code, at);
            let path = code[at..stop].split("::").map(str::to_string);
            out.push(Found {
                path: path.collect(),
                kind: Kind::Plain,
            });
            at = stop;
        } else {
            at = end;
        }
    }
    out
}

fn word_at(code: &str, at: usize) -> &str {
    let bytes = code.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let length = bytes[at..].iter().take_while(|b| is_word(b)).count();
    std::str::from_utf8(&bytes[at..at + length]).unwrap_or("")
}

/// Whether `pub` or `pub(...)` stands before.
fn visible(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with("pub")
        || before.ends_with(')') && before.rfind('(').is_some_and(|i| before[..i].ends_with("pub"))
}

/// Where a path that begins at `at` ends.
fn path_end(code: &str, at: usize) -> usize {
    let mut end = at + word_at(code, at).len();
    while code[end..].starts_with("::") {
        let next = word_at(code, end + 2);
        if next.is_empty() {
            break;
        }
        end += 2 + next.len();
    }
    end
}

/// The paths of a `use` tree.
fn tree(text: &str, before: &[String], public: bool, out: &mut Vec<Found>) {
    let mut path = before.to_vec();
    let mut rest = text.trim();
    if rest.starts_with("::") {
        // Another crate, whatever is called so here.
        return;
    }
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            let end = close(rest, 0).unwrap_or(rest.len());
            for part in split_group(&group[..end.saturating_sub(2)]) {
                tree(part, &path, public, out);
            }
            return;
        }
        if rest.starts_with('*') {
            let kind = Kind::Glob { public };
            return out.push(Found { path, kind });
        }
        let word = word_at(rest, 0);
        if word.is_empty() {
            return;
        }
        path.push(word.to_string());
        rest = rest[word.len()..].trim_start();
        match rest.strip_prefix("::") {
            Some(more) => rest = more.trim_start(),
            None => break,
        }
    }
    let own = path
        .iter()
        .rev()
        .find(|p| *p != "self")
        .cloned()
        .unwrap_or_default();
    let alias = rest.strip_prefix("as ").map_or(own, |a| a.trim().to_string());
    let kind = Kind::Import { alias, public };
    out.push(Found { path, kind });
}

/// The parts of a group between its outer commas.
fn split_group(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut out) = (0, 0, Vec::new());
    for (i, b) in group.bytes().enumerate() {
        match b {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                out.push(&group[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    out.push(&group[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_code_and_of_use_trees() {
        let found = paths_in(
            "pub(crate) use a::{self, b::{C as D, e}, *};\nuse super::f;\nfn g() { crate::h::I::j(k.l) }",
        );
        let text = |f: &Found| {
            let (mark, alias) = match &f.kind {
                Kind::Plain => ("", ""),
                Kind::Import { alias, .. } => ("=", alias.as_str()),
                Kind::Glob { .. } => ("", "*"),
            };
            let public = if f.is_public() { "pub " } else { "" };
            format!("{public}{}{mark}{alias}", f.path.join("::"))
        };
        let all: Vec<String> = found.iter().map(text).collect();
        assert_eq!(
            all,
            [
                "pub a::self=a",
                "pub a::b::C=D",
                "pub a::b::e=e",
                "pub a*",
                "super::f=f",
                "crate::h::I::j"
            ]
        );
    }

    #[test]
    fn names_of_files() {
        let check = |path: &str, want: &str| assert_eq!(name_of(Path::new(path)).join("::"), want);
        check("crates/x/src/lib.rs", "");
        check("crates/x/src/a.rs", "a");
        check("crates/x/src/a/mod.rs", "a");
        check("crates/x/src/a/b.rs", "a::b");
    }
}
