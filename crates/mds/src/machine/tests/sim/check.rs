//! The end of a run: faults heal, all comes to rest, and somebody new looks at everything, twice: before and after one more death
//! of the server. Then the history is checked, and what is counted.

use super::model::{Said, What};
use super::run::{MS, SECOND, Sim};
use crate::machine::Machine;
use crate::row::ROOT;
use std::collections::BTreeMap;

type Outcome<T> = Result<T, String>;

/// Of each inode how many names it has, whether it is a directory, and its size.
type Tree = BTreeMap<u64, (u32, bool, u64)>;

/// Longer than clients may be silent.
const REST: u64 = 700 * SECOND;
const ANSWER: u64 = 120 * SECOND;

pub fn whole(sim: &mut Sim) -> Outcome<()> {
    let span = sim.plan.span_us;
    sim.run_until(span + SECOND, "the end", |s| s.now >= span)?;
    sim.heal();
    sim.run_until(REST, "rest", Sim::is_quiet)?;
    sim.dismiss();
    // What the dead had asked for may still be carried out behind this look, which the history allows.
    look_around(sim)?;
    sim.run_until(REST, "the end of the dead", Sim::has_buried)?;
    let before = look_around(sim)?;
    sim.kill_server(500 * MS);
    sim.run_until(REST, "rest after one more death", Sim::is_quiet)?;
    let after = look_around(sim)?;
    if before != after {
        return Err(format!("one more death made {after:?} of {before:?}"));
    }
    sim.history.check()?;
    if let Some(ino) = after.keys().find(|ino| sim.store.purged.contains(ino)) {
        return Err(format!("{ino:x} has a name, and its objects were removed"));
    }
    sim.run_until(60 * SECOND, "the sum of all files", |s| {
        s.server().is_some_and(|m| counts(m, &after).is_none())
    })
    .map_err(|e| format!("{e}: {:?}", sim.server().and_then(|m| counts(m, &after))))
}

/// What is counted otherwise than it is.
fn counts(m: &Machine, tree: &Tree) -> Option<String> {
    for (ino, (names, is_dir, _)) in tree.iter().filter(|(ino, _)| **ino != ROOT) {
        if let Some(i) = m.cached(*ino)
            && !is_dir
            && i.nlink != *names
        {
            return Some(format!("{ino:x} has {} links and {names} names", i.nlink));
        }
    }
    let Some(root) = m.cached(ROOT) else {
        return Some("the root is not in memory".into());
    };
    let files: Vec<u64> = tree.values().filter(|t| !t.1).map(|t| t.2).collect();
    let dirs = tree.values().filter(|t| t.1).count();
    let is = (files.iter().sum::<u64>() as i64, files.len() as i64, dirs as i64);
    let told = (root.sums.bytes, root.sums.files, root.sums.subdirs);
    (is != told).then(|| format!("bytes, files, directories: {told:?}, and there are {is:?}"))
}

/// All names, by a client that knows nothing.
fn look_around(sim: &mut Sim) -> Outcome<Tree> {
    let id = sim.born();
    let is_open = |s: &Sim| s.clients.get(&id).is_some_and(|c| c.is_open);
    sim.run_until(ANSWER, "a session", is_open)?;
    let mut tree = Tree::from([(ROOT, (1, true, 0))]);
    let mut dirs = vec![ROOT];
    while let Some(dir) = dirs.pop() {
        let Said::Names(names) = call(sim, id, What::List(dir))? else {
            return Err(format!("{dir:x} cannot be listed"));
        };
        for (ino, is_dir) in names.into_values() {
            let Said::Attrs { size, .. } = call(sim, id, What::Stat(ino))? else {
                return Err(format!("{ino:x} has a name and cannot be looked at"));
            };
            let size = if is_dir { 0 } else { size.unwrap_or_default() };
            tree.entry(ino).or_insert((0, is_dir, size)).0 += 1;
            dirs.extend(is_dir.then_some(ino));
        }
    }
    Ok(tree)
}

fn call(sim: &mut Sim, id: u64, what: What) -> Outcome<Said> {
    let number = sim.history.ops.len();
    let text = format!("an answer to {what:?}");
    sim.ask(id, &what);
    sim.run_until(ANSWER, &text, |s| {
        s.history.ops.get(number).is_some_and(|o| o.said.is_some())
    })?;
    let said = sim.history.ops[number].said.clone();
    said.ok_or_else(|| format!("{text} did not come"))
}
