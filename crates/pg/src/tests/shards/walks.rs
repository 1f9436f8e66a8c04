//! Walks at random: clients write, OSDs die, come back, lose their disks and their connections, and the PG moves. Whatever was answered is
//! there in the end, and all shards fit.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Write(usize, u64, u8, u8),
    Full(usize, u8, u8),
    Truncate(usize, u64),
    Delete(usize),
    Run(u8),
    Kill(u8),
    Start(u8),
    Cut(u8, u8),
    Mend,
    Move(u8),
    Snap,
    /// The OSD dies, and its disk is empty.
    Wipe(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let o = 0..3usize;
    prop_oneof![
        6 => (o.clone(), 0..120u64, 1..60u8, any::<u8>()).prop_map(|(o, at, n, v)| Step::Write(o, at, n, v)),
        2 => (o.clone(), 1..100u8, any::<u8>()).prop_map(|(o, n, v)| Step::Full(o, n, v)),
        1 => (o.clone(), 0..150u64).prop_map(|(o, n)| Step::Truncate(o, n)),
        1 => o.prop_map(Step::Delete),
        8 => any::<u8>().prop_map(Step::Run),
        3 => any::<u8>().prop_map(Step::Kill),
        4 => any::<u8>().prop_map(Step::Start),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Step::Cut(a, b)),
        1 => Just(Step::Mend),
        1 => any::<u8>().prop_map(Step::Move),
        1 => Just(Step::Snap),
        1 => any::<u8>().prop_map(Step::Wipe),
    ]
}

/// What a client knows of its objects; one message of each is open at a time.
#[derive(Default)]
struct Client1 {
    data: BTreeMap<usize, Vec<u8>>,
    open: BTreeMap<usize, (u64, Step)>,
    /// The objects as they were.
    snaps: Vec<BTreeMap<usize, Vec<u8>>>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Client1 {
    fn ops(step: &Step) -> Option<(usize, OsdOp)> {
        Some(match step {
            Step::Write(o, at, n, v) => (*o, write(*at, &vec![*v; *n as usize])),
            Step::Full(o, n, v) => (*o, write_full(&vec![*v; *n as usize])),
            Step::Truncate(o, n) => (*o, OsdOp::ranged(code::TRUNCATE, *n, 0)),
            Step::Delete(o) => (*o, op(code::DELETE)),
            _ => return None,
        })
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(o, at, n, v) => {
                let data = self.data.entry(*o).or_default();
                let end = *at as usize + *n as usize;
                data.resize(data.len().max(end), 0);
                data[*at as usize..end].fill(*v);
            }
            Step::Full(o, n, v) => drop(self.data.insert(*o, vec![*v; *n as usize])),
            Step::Truncate(o, n) => {
                if let Some(data) = self.data.get_mut(o) {
                    data.resize(*n as usize, 0);
                }
            }
            Step::Delete(o) => drop(self.data.remove(o)),
            _ => {}
        }
    }

    /// Takes in answers.
    fn hear(&mut self, c: &Cluster) {
        for o in 0..NAMES.len() {
            let Some((tid, _)) = self.open.get(&o) else {
                continue;
            };
            let Some(reply) = c.answered(*tid) else { continue };
            let result = reply.result;
            let Some((_, step)) = self.open.remove(&o) else {
                continue;
            };
            match result {
                0 => self.apply(&step),
                -2 => assert!(!self.data.contains_key(&o), "{step:?}: it is there"),
                e => panic!("{step:?}: {e}"),
            }
        }
    }

    fn send_open(&self, c: &mut Cluster) {
        for (tid, step) in self.open.values() {
            if let Some((o, op)) = Self::ops(step) {
                c.send_again(*tid, NAMES[o], vec![op]);
            }
        }
    }
}

/// A walk: whatever was answered is there in the end, and all shards fit.
fn walk(n: usize, k: usize, m: usize, seed: u64, steps: &[Step]) {
    let mut c = Cluster::new(n, k, m);
    let mut client = Client1::default();
    let mut at = seed | 1;
    let mut pick = move |max: usize| {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        (at >> 20) as usize % max
    };
    let mut known = (c.interval, c.primary);
    c.run(&mut pick, 200);
    let osd = |x: u8| (usize::from(x) % n) as OsdId;
    let mut wiped = false;
    for s in steps {
        match s {
            Step::Run(turns) => c.run(&mut pick, usize::from(*turns)),
            Step::Kill(x) => c.kill(osd(*x)),
            Step::Start(x) => c.start(osd(*x)),
            Step::Cut(a, b) if osd(*a) != osd(*b) => c.cut(osd(*a), osd(*b)),
            Step::Cut(..) => {}
            Step::Mend => c.mend(),
            Step::Move(x) => {
                c.crush.rotate_left(usize::from(*x) % (k + m));
                c.tell_all();
            }
            // What is sent again has the context that it had.
            Step::Snap if client.open.is_empty() => {
                client.snaps.push(client.data.clone());
                let newest = client.snaps.len() as u64;
                c.requests.snapc = (newest, (1..=newest).rev().collect());
            }
            Step::Snap => {}
            // Nothing is lost while the others have all.
            Step::Wipe(x) if !wiped && c.in_sync.len() == k + m => {
                wiped = true;
                c.kill(osd(*x));
                let node = &mut c.nodes[osd(*x) as usize];
                if let Role::Down = node.role {
                    (node.store, node.flushed) = Default::default();
                }
            }
            Step::Wipe(_) => {}
            s => {
                if let Some((o, op)) = Client1::ops(s)
                    && !client.open.contains_key(&o)
                    && c.is_up(c.primary)
                {
                    let tid = c.send(NAMES[o], vec![op]);
                    client.open.insert(o, (tid, s.clone()));
                }
            }
        }
        client.hear(&c);
        // Clients send again where another one leads.
        if known != (c.interval, c.primary) && c.is_up(c.primary) {
            known = (c.interval, c.primary);
            client.send_open(&mut c);
        }
    }
    end(&mut c, &mut client);
}

/// All are there again: what was answered is there, and what was not is answered.
fn end(c: &mut Cluster, client: &mut Client1) {
    (0..c.nodes.len() as OsdId).for_each(|o| c.start(o));
    c.mend();
    c.settle();
    for _ in 0..20 {
        client.send_open(c);
        c.run(in_turn(), 100);
        client.hear(c);
    }
    assert!(client.open.is_empty(), "{:?} is not answered", client.open);
    c.settle();
    for (o, name) in NAMES.into_iter().enumerate() {
        // One that was removed has a head that stands for its snapshots.
        let want = client.data.get(&o).cloned().unwrap_or_default();
        assert_eq!(c.check(name).unwrap_or_default(), want, "{name}");
        assert_eq!(
            c.data(name).as_ref(),
            client.data.get(&o),
            "{name}, as it is read"
        );
        for (at, then) in client.snaps.iter().enumerate() {
            let got = c.data_at(name, at as u64 + 1);
            assert_eq!(got.as_ref(), then.get(&o), "{name} at {at}");
        }
    }
    c.check_all();
    c.check_logs();
}

/// The walks would notice: each rule that is broken makes one of them fail.
#[test]
fn broken_rules_are_found() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let walks = (any::<u64>(), proptest::collection::vec(step(), 30..60));
    for rule in [Rule::EveryShard, Rule::UndoneAtPeering] {
        let mut runner = TestRunner::deterministic();
        let found = (0..200).any(|_| {
            let (seed, steps) = walks.new_tree(&mut runner).unwrap().current();
            broken::set(Some(rule));
            let failed = std::panic::catch_unwind(|| walk(3, 2, 1, seed, &steps)).is_err();
            broken::set(None);
            failed
        });
        assert!(found, "{rule:?} is broken, and nobody notices");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn two_and_one(seed in any::<u64>(), steps in proptest::collection::vec(step(), 1..60)) {
        walk(3, 2, 1, seed, &steps);
    }

    #[test]
    fn three_and_two_of_six(seed in any::<u64>(), steps in proptest::collection::vec(step(), 1..60)) {
        walk(6, 3, 2, seed, &steps);
    }
}
