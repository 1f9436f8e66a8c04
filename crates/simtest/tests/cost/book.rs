//! The numbers that are kept, and how they are compared with what was counted.
//!
//! Invariant: a ratchet. What costs more than its tolerance fails; what costs less does, too, until its number is lowered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How to put what is counted in place of what is kept.
pub const BLESS: &str = "SKEP_BLESS=1 cargo test -p simtest --test cost --locked";

/// Of 100. The same build gives the same numbers; what a change has nothing to do with may fall into other batches and
/// checkpoints by it: other places for the same jobs moved calls and bytes by up to 6, instructions by less than 1; a library chooses by the processor what it sums and copies with.
const TOLERANCES: &[(&str, f64)] = &[("instructions", 8.0), ("allocations", 2.0)];
const TOLERANCE: f64 = 7.0;
/// Of instructions by another compiler than those that are kept.
const OTHER_COMPILER: f64 = 15.0;
/// So little is never a difference.
const NOTHING: f64 = 0.05;

/// Of each job, each count of one operation.
pub type Costs = BTreeMap<String, BTreeMap<String, f64>>;

#[derive(Debug, Clone, PartialEq)]
pub struct Book {
    pub compiler: String,
    pub costs: Costs,
}

impl Book {
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let mut book = Self {
            compiler: String::new(),
            costs: Costs::new(),
        };
        for (name, value) in table {
            match value {
                toml::Value::String(s) if name == "compiler" => book.compiler = s,
                toml::Value::Table(counts) => {
                    let counts = counts.into_iter().map(|(what, n)| {
                        let n = n.as_float().or(n.as_integer().map(|n| n as f64));
                        Ok((what.clone(), n.ok_or(format!("{name}: {what} is no number"))?))
                    });
                    book.costs
                        .insert(name.clone(), counts.collect::<Result<_, String>>()?);
                }
                _ => return Err(format!("{name} is neither the compiler nor a job")),
            }
        }
        Ok(book)
    }

    pub fn text(&self) -> String {
        let mut out = format!(
            "# What one operation costs three OSDs that keep three copies: docs/internals/performance.md, \"The guard\".\n\
             # Written by: {BLESS}\n\ncompiler = \"{}\"\n",
            self.compiler
        );
        for (job, counts) in &self.costs {
            // Into a string: cannot fail.
            let _ = write!(out, "\n[{job}]\n");
            for (what, n) in counts {
                let digits = if *n < 1000.0 { 2 } else { 0 };
                let _ = writeln!(out, "{what} = {n:.digits$}");
            }
        }
        out
    }

    /// What is wrong with what was counted, a sentence each.
    pub fn compare(&self, seen: &Book) -> Vec<String> {
        let mut wrong = Vec::new();
        let jobs: BTreeSet<&String> = self.costs.keys().chain(seen.costs.keys()).collect();
        for job in jobs {
            let (Some(kept), Some(now)) = (self.costs.get(job), seen.costs.get(job)) else {
                wrong.push(format!(
                    "{job} is only among what is kept, or only among what is counted"
                ));
                continue;
            };
            if !kept.keys().eq(now.keys()) {
                wrong.push(format!("{job}: other things are counted than are kept"));
            }
            for (what, kept) in kept {
                let Some(now) = now.get(what) else { continue };
                wrong.extend(self.judge(seen, job, what, *kept, *now));
            }
        }
        wrong
    }

    fn judge(&self, seen: &Book, job: &str, what: &str, kept: f64, now: f64) -> Option<String> {
        let own = TOLERANCES.iter().find(|(name, _)| *name == what);
        let mut tolerance = own.map_or(TOLERANCE, |(_, t)| *t);
        if what == "instructions" && seen.compiler != self.compiler {
            tolerance = OTHER_COMPILER;
        }
        let (more, percent) = (now - kept, 100.0 * (now - kept) / kept);
        if more.abs() <= NOTHING.max(kept * tolerance / 100.0) {
            return None;
        }
        Some(match more > 0.0 {
            true => format!("{job}: {what} {kept:.2} before, {now:.2} now: {percent:+.1} %, costs more"),
            false => {
                format!("{job}: {what} {kept:.2} before, {now:.2} now: {percent:+.1} %, lower the number")
            }
        })
    }
}

fn book(compiler: &str, instructions: f64, flushes: f64) -> Book {
    let counts = [("instructions", instructions), ("flushes", flushes)];
    let counts = counts.map(|(what, n)| (what.to_owned(), n)).into();
    Book {
        compiler: compiler.into(),
        costs: BTreeMap::from([("write".to_owned(), counts)]),
    }
}

#[test]
fn both_directions_fail_beyond_the_tolerance() {
    let kept = book("1", 1000.0, 0.0);
    for (compiler, instructions, flushes, want) in [
        ("1", 1079.0, 0.04, None),
        ("1", 921.0, 0.0, None),
        ("1", 1081.0, 0.0, Some("+8.1 %, costs more")),
        ("1", 919.0, 0.0, Some("-8.1 %, lower the number")),
        ("1", 1000.0, 0.5, Some("flushes 0.00 before, 0.50 now")),
        ("2", 1140.0, 0.0, None),
        ("2", 1160.0, 0.0, Some("+16.0 %, costs more")),
    ] {
        let said = kept.compare(&book(compiler, instructions, flushes));
        match want {
            None => assert_eq!(said, Vec::<String>::new()),
            Some(want) => assert!(said.len() == 1 && said[0].contains(want), "{said:?}"),
        }
    }
}

#[test]
fn a_job_or_a_count_that_is_missing_is_told() {
    let kept = book("1", 1000.0, 3.0);
    let mut other = kept.clone();
    other.costs.get_mut("write").unwrap().remove("flushes");
    assert_eq!(kept.compare(&other).len(), 1);
    other.costs.clear();
    assert_eq!(kept.compare(&other).len(), 1);
    assert_eq!(other.compare(&kept).len(), 1);
}

#[test]
fn what_is_written_is_read() {
    let kept = book("1.95.0", 123_456.0, 3.25);
    assert_eq!(Book::parse(&kept.text()).unwrap(), kept);
    assert!(Book::parse("[write]\nflushes = \"no\"").is_err());
}
