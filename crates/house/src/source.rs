//! The Rust sources of the workspace, read and lexed once for all rules.
//!
//! Vocabulary: *code* is a file's text with comments and what stands between quotes made blank, *comments* the
//! opposite; both keep every byte's place, so lines and columns are those of the file. *Product* code is code without
//! what is compiled for tests only: modules and items behind `#[cfg(test)]` (or a `cfg` that names `test` otherwise),
//! files that such a module declares, and everything under `tests/`, `examples/` and `benches/`.
//!
//! Not here: Rust's grammar. Items are found by keywords, braces and what rustfmt makes of both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One Rust file of a crate.
pub struct Source {
    /// The crate's folder under `crates/`.
    pub krate: String,
    /// From the root of the repository.
    pub path: PathBuf,
    pub text: String,
    pub code: String,
    pub comments: String,
    /// [`Self::code`] with what only tests compile made blank, too.
    pub product: String,
    /// Nothing of it is in the product.
    pub tests_only: bool,
}

/// A function with its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Of the line with `fn`, from 1.
    pub line: usize,
    /// From there to the closing brace.
    pub lines: usize,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_all);

/// All Rust files under `crates/`, in the order of their paths.
pub fn all() -> &'static [Source] {
    &SOURCES
}

pub fn of_crate(name: &str) -> impl Iterator<Item = &'static Source> {
    all().iter().filter(move |s| s.krate == name)
}

/// The repository's root.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Files below `dir` with one of these extensions, sorted; what is hidden or built is left out.
pub fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.filter_map(|e| Some(e.ok()?.path())) {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or(".");
            if name.starts_with('.') || ["target", "__pycache__", "node_modules"].contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .and_then(|e| e.to_str())
                .is_some_and(|e| extensions.contains(&e))
            {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

fn read_all() -> Vec<Source> {
    let root = root();
    let mut sources = Vec::new();
    let mut test_modules = BTreeSet::new();
    for path in files(&root.join("crates"), &["rs"]) {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let path = path.strip_prefix(&root).unwrap_or(&path).to_path_buf();
        let mut parts = path.iter().skip(1).map(|p| p.to_string_lossy().into_owned());
        let (krate, folder) = (parts.next().unwrap_or_default(), parts.next());
        let (code, comments) = lex(&text);
        let (product, declared) = without_tests(&code);
        test_modules.extend(declared.into_iter().map(|m| module_dir(&path).join(m)));
        sources.push(Source {
            krate,
            tests_only: folder.as_deref() != Some("src"),
            path,
            text,
            code,
            comments,
            product,
        });
    }
    for source in &mut sources {
        let stem = source.path.with_extension("");
        source.tests_only |= test_modules.iter().any(|t| stem.starts_with(t));
        if source.tests_only {
            source.product.clear();
        }
    }
    sources
}

/// Where the modules of `file` live: beside `lib.rs`, `main.rs`, `mod.rs`; else in the folder of its name.
fn module_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap_or(Path::new("")).to_path_buf();
    match file.file_stem().and_then(|s| s.to_str()) {
        Some("lib" | "main" | "mod") | None => dir,
        Some(stem) => dir.join(stem),
    }
}

/// What a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Quoted,
}

/// Code and comments of a text.
pub fn lex(text: &str) -> (String, String) {
    let parts = parts(text.as_bytes());
    let only = |part: Part| {
        let kept = text.bytes().zip(&parts).map(|(b, p)| match b {
            b'\n' => b,
            _ if *p == part => b,
            _ => b' ',
        });
        String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
    };
    (only(Part::Code), only(Part::Comment))
}

fn parts(text: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (part, from, end) = if rest.starts_with(b"//") {
            let line = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            (Part::Comment, 0, line)
        } else if rest.starts_with(b"/*") {
            (Part::Comment, 0, block_end(rest))
        } else if let Some((open, end)) = quoted(text, at) {
            (Part::Quoted, open, end)
        } else {
            at += 1;
            continue;
        };
        // Quotes themselves stay in the code.
        let keep = usize::from(part == Part::Quoted);
        let end = end.min(rest.len());
        parts[at + from..(at + end).saturating_sub(keep).max(at + from)].fill(part);
        at += end.max(1);
    }
    parts
}

/// The length of a block comment; they nest.
fn block_end(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

/// A string or character that begins at `at`: where what is between its quotes begins, and its length.
fn quoted(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    match rest[0] {
        b'"' => Some((1, 1 + string_end(&rest[1..]))),
        b'r' if at == 0 || !is_word(text[at - 1]) || text[at - 1] == b'b' => {
            let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return None;
            }
            let close: Vec<u8> = std::iter::once(b'"')
                .chain(std::iter::repeat_n(b'#', hashes))
                .collect();
            let open = 2 + hashes;
            let length = rest[open..].windows(close.len()).position(|w| w == close)?;
            Some((open, open + length + close.len()))
        }
        b'\'' => character(rest).map(|end| (1, end)),
        _ => None,
    }
}

/// The length of a string's rest, its closing quote included.
fn string_end(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; None: it is a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let end = match *rest.get(1)? {
        b'\\' => 3 + rest[3..].iter().position(|b| *b == b'\'')?,
        first => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            1 + width
        }
    };
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

/// Code without the items that a `cfg` with `test` guards; and the modules in files of their own among these.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut out = code.as_bytes().to_vec();
    let mut modules = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(").map(|i| i + from) {
        let end = close(code, found + 1).unwrap_or(code.len());
        from = end;
        let condition = &code[found..end];
        if !words(condition).any(|w| w == "test") || condition.contains("not(test") {
            continue;
        }
        let (item, end) = item_after(code, end);
        if let Some(name) = declared_module(&code[item..end]) {
            modules.push(name);
        }
        out[found..end]
            .iter_mut()
            .filter(|b| **b != b'\n')
            .for_each(|b| *b = b' ');
        from = end;
    }
    (String::from_utf8_lossy(&out).into_owned(), modules)
}

/// `mod name;`, whatever its visibility.
fn declared_module(item: &str) -> Option<String> {
    let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    Some(name.trim().to_string()).filter(|n| n.bytes().all(is_word))
}

/// Where the item behind an attribute begins, further attributes skipped, and where it ends.
fn item_after(code: &str, mut at: usize) -> (usize, usize) {
    let bytes = code.as_bytes();
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            break;
        }
        at = close(code, at + 1).unwrap_or(code.len());
    }
    const ITEMS: [&str; 17] = [
        "pub",
        "fn",
        "mod",
        "use",
        "struct",
        "enum",
        "impl",
        "const",
        "static",
        "type",
        "trait",
        "let",
        "async",
        "unsafe",
        "extern",
        "macro_rules",
        "if",
    ];
    let is_item = words(&code[at..]).next().is_some_and(|w| ITEMS.contains(&w));
    let mut end = at;
    while end < bytes.len() {
        match bytes[end] {
            b';' => return (at, end + 1),
            b'{' => return (at, close(code, end).unwrap_or(code.len())),
            b'(' | b'[' => end = close(code, end).unwrap_or(code.len()),
            // A field, a variant, an arm.
            b',' | b'}' if !is_item => return (at, end),
            _ => end += 1,
        }
    }
    (at, end)
}

/// The place behind what closes the bracket at `open`.
pub fn close(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, b) in code.bytes().enumerate().skip(open) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Names, keywords and numbers.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|w| !w.is_empty())
}

/// All functions with bodies, those inside others too.
pub fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut out = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name: String = code[at + 3..].chars().take_while(|c| is_word(*c as u8)).collect();
        if name.is_empty() || at > 0 && is_word(bytes[at - 1]) {
            continue;
        }
        let (_, end) = item_after(code, at);
        if bytes.get(end - 1) != Some(&b'}') {
            continue;
        }
        out.push(Function {
            name,
            line: 1 + code[..at].matches('\n').count(),
            lines: 1 + code[at..end].matches('\n').count(),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_quotes_are_no_code() {
        let text = r##"let a = "b // c"; // d "e"
/* f /* g */ h */ let i = 'j'; let k = r#"l " m"#; fn n<'o>(p: &'o u8) { q('\'', b'"', '\u{1f600}') }"##;
        let (code, comments) = lex(text);
        let kept: Vec<&str> = words(&code).collect();
        let want = "let a let i let k r fn n o p o u8 q b".split(' ');
        assert_eq!(kept, want.collect::<Vec<_>>());
        assert_eq!(words(&comments).collect::<String>(), "defgh");
        assert_eq!((code.len(), code.matches('\n').count()), (text.len(), 1));
    }

    #[test]
    fn what_tests_compile_is_not_in_the_product() {
        let code = "use a;\n#[cfg(test)]\nmod far;\nfn f() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn g() { h[0] }\n}\n\
                    #[cfg(any(test, feature = \"t\"))]\npub mod near;\nstruct S {\n    #[cfg(test)]\n    i: u8,\n    j: u8,\n}\n\
                    #[cfg(not(test))]\nfn k() {}\n";
        let (product, modules) = without_tests(code);
        assert_eq!(modules, ["far", "near"]);
        let kept: Vec<&str> = words(&product).collect();
        let want = "use a fn f struct S j u8 cfg not test fn k".split(' ');
        assert_eq!(kept, want.collect::<Vec<_>>());
    }

    #[test]
    fn functions_have_lines() {
        let found =
            functions("fn a(x: [u8; 2]) -> u8 {\n    fn b() {}\n    1\n}\ntrait T { fn c(&self); }\n");
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("a", 1, 4), ("b", 2, 1)]);
    }

    #[test]
    fn the_whole_tree_is_read() {
        assert!(all().len() > 400 && of_crate("house").count() >= 5);
        let tests_only = |path: &str| {
            all()
                .iter()
                .find(|s| s.path == Path::new(path))
                .map(|s| s.tests_only)
        };
        assert_eq!(tests_only("crates/pg/src/tests/mod.rs"), Some(true));
        assert_eq!(tests_only("crates/pg/src/memory.rs"), Some(true));
        assert_eq!(tests_only("crates/pg/src/pg.rs"), Some(false));
    }
}
