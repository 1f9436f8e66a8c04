//! What is said of the cluster's options is so: each that is said to act is read, and what monitors and the manager read is said to act.

#![allow(clippy::unwrap_used)]

use house::source::all;
use std::collections::BTreeSet;

const TABLE: &str = "crates/cluster/src/options/acting.rs";
/// Calls by which monitors and manager read an option of the cluster.
const READS: [&str; 4] = ["mon_option", "mon_option_bool", "mon_option_u64", "mgr_option"];

fn table() -> BTreeSet<&'static str> {
    let source = all().iter().find(|s| s.path.ends_with(TABLE)).unwrap();
    let rows = source
        .text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("act(\""));
    rows.filter_map(|l| l.split('"').next()).collect()
}

/// Names that calls in the product have as their first argument, as literals: these are blank there, and in `text` at the same place.
fn read<'a>(product: &str, text: &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for call in READS {
        for (at, _) in product.match_indices(call) {
            let argument = text[at + call.len()..].strip_prefix('(');
            let literal = argument.and_then(|a| a.trim_start().strip_prefix('"'));
            found.extend(literal.and_then(|l| l.split('"').next()));
        }
    }
    found
}

#[test]
fn calls_in_a_text() {
    let text = "x.mon_option(\"a\").or(s.mon_option_u64(\n    \"b\", 1)).mgr_option(&format!(\"c\")); mon_option_of(\"d\")";
    assert_eq!(read(text, text), ["a", "b"]);
    assert!(read(&" ".repeat(text.len()), text).is_empty());
}

#[test]
fn what_monitors_read_is_said_to_act() {
    let table = table();
    assert!(table.len() > 70, "{table:?}");
    let mut problems = Vec::new();
    for source in all() {
        let missing = read(&source.product, &source.text)
            .into_iter()
            .filter(|n| !table.contains(n));
        problems.extend(missing.map(|n| format!("{}: {n} is not in {TABLE}", source.path.display())));
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn what_is_said_to_act_is_read() {
    let elsewhere = all()
        .iter()
        .filter(|s| !s.tests_only && s.krate != "simtest" && !s.path.ends_with(TABLE));
    let product: Vec<_> = elsewhere
        .map(|s| s.text.split("#[cfg(test)]").next().unwrap())
        .collect();
    let is_read = |name: &str| {
        // Options of alarms are put together from the module's name and theirs.
        let word = name.strip_prefix("mgr/alerts/").unwrap_or(name);
        let literal = format!("\"{word}\"");
        product.iter().any(|text| text.contains(&literal))
    };
    let unread: Vec<_> = table().into_iter().filter(|n| !is_read(n)).collect();
    assert!(unread.is_empty(), "nobody reads {unread:?}");
}
