//! Ratchets: what is longest may only become shorter. Where something did, its number here follows.

#![allow(clippy::unwrap_used)]

use house::source::{Source, all, functions};

/// Lines of the longest file of the product, and of its tests.
const FILE_LINES_MAX: usize = 786;
const TEST_FILE_LINES_MAX: usize = 1231;
/// Lines of the longest function of the product.
const FUNCTION_LINES_MAX: usize = 171;
/// A function with more lines is long; so many of the product's are.
const LONG: usize = 60;
const LONG_FUNCTIONS_MAX: usize = 36;

fn ratchet(what: &str, have: usize, most: usize, where_: &str) {
    assert!(
        have <= most,
        "{what}: {have}, at most {most} are allowed: {where_}"
    );
    assert!(
        have == most,
        "{what}: only {have} now: put that in place of {most}"
    );
}

fn longest_file(of: impl Fn(&&Source) -> bool) -> (usize, String) {
    let files = all().iter().filter(of);
    let sizes = files.map(|s| (s.text.lines().count(), s.path.display().to_string()));
    sizes.max().unwrap()
}

#[test]
fn files() {
    let (lines, path) = longest_file(|s| !s.tests_only);
    ratchet("lines of the longest file", lines, FILE_LINES_MAX, &path);
    let (lines, path) = longest_file(|s| s.tests_only);
    ratchet(
        "lines of the longest file of tests",
        lines,
        TEST_FILE_LINES_MAX,
        &path,
    );
}

#[test]
fn functions_of_the_product() {
    let mut found = Vec::new();
    for source in all() {
        let path = source.path.display();
        let all = functions(&source.product).into_iter();
        found.extend(all.map(|f| (f.lines, format!("{path}:{}: {}", f.line, f.name))));
    }
    let (lines, longest) = found.iter().max().unwrap();
    ratchet(
        "lines of the longest function",
        *lines,
        FUNCTION_LINES_MAX,
        longest,
    );
    let long: Vec<&str> = found
        .iter()
        .filter(|(n, _)| *n > LONG)
        .map(|(_, f)| f.as_str())
        .collect();
    let what = format!("functions of more than {LONG} lines");
    ratchet(&what, long.len(), LONG_FUNCTIONS_MAX, &long.join("\n"));
}
