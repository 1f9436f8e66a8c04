//! The handbook and the program name the same health checks, and each of its sections names a test that exists.

#![allow(clippy::unwrap_used)]

use house::source::root;
use std::collections::BTreeSet;
use std::fs;

const CHECKS: &str = "crates/mon/src/commands/checks";
const HANDBOOK: &str = "docs/operating/handbook.md";

fn is_code(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Codes that the checks' sources write as literals, without their tests.
fn raised() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for file in fs::read_dir(root().join(CHECKS)).unwrap().flatten() {
        let text = fs::read_to_string(file.path()).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        let words = product.split('"').skip(1).step_by(2).filter(|w| is_code(w));
        codes.extend(words.map(str::to_owned));
    }
    codes.retain(|c| !c.starts_with("HEALTH_"));
    codes
}

#[test]
fn every_health_check_has_its_section() {
    let text = fs::read_to_string(root().join(HANDBOOK)).unwrap();
    let headings = text.lines().filter_map(|l| l.strip_prefix("### "));
    let told: BTreeSet<String> = headings.flat_map(|h| h.split(", ")).map(str::to_owned).collect();
    let raised = raised();
    assert!(raised.len() > 40, "{raised:?}");
    let (missing, stale): (Vec<_>, Vec<_>) = (
        raised.difference(&told).collect(),
        told.difference(&raised).collect(),
    );
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{HANDBOOK}: no section for {missing:?}; no check for {stale:?}"
    );
}

#[test]
fn every_section_says_what_to_do_and_names_its_tests() {
    let text = fs::read_to_string(root().join(HANDBOOK)).unwrap();
    for section in text.split("\n### ").skip(1) {
        let title = section.lines().next().unwrap();
        assert!(
            section.contains("**Seen**") && section.contains("**Do**"),
            "{title}"
        );
        let (_, tested) = section
            .split_once("**Tested**")
            .unwrap_or_else(|| panic!("{title}: by which test?"));
        // References that point nowhere are another test's.
        assert!(
            tested.contains("`tests/") || tested.contains("`crates/"),
            "{title}"
        );
        let codes = title.split(", ").collect::<Vec<_>>();
        let named = tested
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|path| fs::read_to_string(root().join(path)).unwrap_or_default());
        let all: String = named.collect();
        for code in codes {
            assert!(all.contains(code), "{title}: no test there names {code}");
        }
    }
}
