//! What operations cost the servers, compared with `cost.toml`: `simtest cost` under callgrind, a process of its own.
//!
//! Where a change makes it cost more or less, `SKEP_BLESS=1 cargo test -p simtest --test cost` writes the numbers anew; the commit says
//! why. Where it is spent: docs/internals/performance.md, "The guard".

#![allow(clippy::unwrap_used, clippy::disallowed_macros, clippy::disallowed_methods)] // reads files, starts a program

mod book;

use book::{BLESS, Book, Costs};
use simtest::cost::{IDLE, JOBS};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_simtest");
/// Before the version of the compiler, in every program that it made.
const MADE_BY: &[u8] = b"rustc version ";

/// What is counted of a window, instructions among it.
struct Window {
    ops: f64,
    virtual_s: f64,
    counts: BTreeMap<String, f64>,
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cost.toml")
}

fn compiler() -> String {
    let program = std::fs::read(PROGRAM).unwrap();
    let at = program.windows(MADE_BY.len()).position(|w| w == MADE_BY).unwrap();
    let version = program[at + MADE_BY.len()..].iter().take_while(|b| **b > b' ');
    version.map(|b| char::from(*b)).collect()
}

/// Runs all jobs under callgrind, whose profiles go to this folder.
fn count(folder: &Path) -> String {
    let profile = folder.join("callgrind.out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--instr-atstart=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .args([PROGRAM, "cost"])
        // What the environment holds moves the stack.
        .env_clear()
        .output()
        .unwrap_or_else(|e| panic!("valgrind does not start ({e}): Debian's package of that name is needed"));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    String::from_utf8(run.stdout).unwrap()
}

/// Instructions by window, from the profiles.
fn instructions(folder: &Path) -> BTreeMap<String, f64> {
    let files = std::fs::read_dir(folder).unwrap();
    let texts =
        files.map(|f| String::from_utf8_lossy(&std::fs::read(f.unwrap().path()).unwrap()).into_owned());
    let of = |text: String| {
        let after = |head: &str| {
            text.lines()
                .find_map(|l| Some(l.strip_prefix(head)?.trim().to_owned()))
        };
        // The last profile is written at the program's end.
        let window = after("desc: Trigger: Client Request:")?;
        let sum = after("summary:").or_else(|| after("totals:"))?;
        Some((window, sum.parse().ok()?))
    };
    texts.filter_map(of).collect()
}

fn windows(said: &str, instructions: &BTreeMap<String, f64>) -> BTreeMap<String, Window> {
    let parse = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        let words: Vec<&str> = rest.split(' ').collect();
        let pairs = words.chunks(2).map(|p| (p[0].to_owned(), p[1].parse().unwrap()));
        let mut counts: BTreeMap<String, f64> = pairs.collect();
        // On other processors there is no way to ask callgrind for a window.
        if cfg!(target_arch = "x86_64") {
            counts.insert("instructions".into(), instructions[name]);
        }
        let window = Window {
            ops: counts.remove("ops").unwrap(),
            virtual_s: counts.remove("virtual_s").unwrap(),
            counts,
        };
        (name.to_owned(), window)
    };
    said.lines().map(parse).collect()
}

/// Of one operation, less what would have been done without any; of nobody's operation, of a second.
fn costs(windows: &BTreeMap<String, Window>) -> Costs {
    let idle = &windows[IDLE];
    let second = |what: &str| idle.counts[what] / idle.virtual_s;
    let of = |(name, w): (&String, &Window)| {
        let counts = w.counts.iter().map(|(what, n)| {
            let one = match name == IDLE {
                true => second(what),
                false => (n - second(what) * w.virtual_s) / w.ops,
            };
            (what.clone(), one.max(0.0))
        });
        (name.clone(), counts.collect())
    };
    windows.iter().map(of).collect()
}

#[test]
fn operations_cost_what_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let said = count(folder.path());
    let windows = windows(&said, &instructions(folder.path()));
    assert_eq!(windows.len(), JOBS.len() + 1, "{said}");
    let seen = Book {
        compiler: compiler(),
        costs: costs(&windows),
    };
    println!("{}", seen.text());
    if std::env::var_os("SKEP_BLESS").is_some() {
        std::fs::write(kept(), seen.text()).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(kept()).unwrap();
    let kept = Book::parse(&kept).unwrap();
    let wrong = kept.compare(&seen);
    assert!(
        wrong.is_empty(),
        "what an operation costs is not what crates/simtest/cost.toml says (compilers: {} there, {} here):\n  {}\n\
         If that is meant, write the numbers anew, and say in the commit why: {BLESS}",
        kept.compiler,
        seen.compiler,
        wrong.join("\n  ")
    );
}
