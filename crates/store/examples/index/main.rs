//! Engines for the index, measured on the store's own job: the rows of its checkpoints.
//!
//! `cargo run --release -p store --example index -- DIR [objects=100000,1000000] [rounds=3] [engines=redb,fjall]
//! [cache=32] [limit=0]`, or `store=N`, or `replay=N` with `cold=1` or without
//!
//! Each round runs the engines one after the other, each step in a process of its own; what is printed is the median
//! over the rounds, the range, and the median of the rounds' ratios to the first engine. `cache` is the MiB an engine
//! may use (redb: its cache; fjall: block cache and memtables). `limit` puts the processes into a memory cgroup (v1)
//! of that many MiB, the page cache counted: a database larger than memory. `store=N` measures instead what reads
//! cost in the store's layers above the index, and `replay=N` what opening costs, with N objects. CPU counts all
//! threads, and what settles after the last commit. Bytes are those given to write calls.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod fjall;
mod layers;
mod replay;
mod rows;

use io::disk::{Disk, HostDisk};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::index::{Change, Index, RedbIndex, Row, Rows, Snapshot, Table};
use store::{Error, Result};

const CGROUPS: &str = "/sys/fs/cgroup/memory";
const OVERWRITE_CHECKPOINTS: u64 = 40;

#[derive(Clone)]
struct Setup {
    dir: PathBuf,
    engine: String,
    objects: u64,
    cache: u64,
}

impl Setup {
    fn open(&self) -> Arc<dyn Index> {
        let dir = self.dir.join(&self.engine);
        std::fs::create_dir_all(&dir).unwrap();
        if self.engine == "fjall" {
            return Arc::new(fjall::FjallIndex::open(&dir, self.cache).unwrap());
        }
        let disk = HostDisk::new(&dir);
        let exists = disk.exists("index").unwrap();
        let file = if exists {
            disk.open("index")
        } else {
            disk.create("index")
        };
        let index = RedbIndex::open("redb", file.unwrap(), self.cache).unwrap();
        Arc::new(index)
    }

    /// Bytes that the files take of the host.
    fn disk_bytes(&self) -> u64 {
        let out = Command::new("du")
            .arg("-sB1")
            .arg(self.dir.join(&self.engine))
            .output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// Microseconds of CPU of all threads, bytes given to write calls, peak of memory in KiB.
fn usage() -> (f64, u64, f64) {
    let read = |f: &str| std::fs::read_to_string(format!("/proc/self/{f}")).unwrap();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let number = |text: &str, name: &str| -> f64 {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let written = number(&read("io"), "wchar:") as u64;
    (ticks * 10_000.0, written, number(&read("status"), "VmHWM"))
}

fn say(name: &str, value: f64) {
    println!("{name} {value}");
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q) as usize]
}

/// Waits until nothing is written any more: what an engine left for later belongs to the price.
fn settle() {
    let mut last = 0;
    while last != usage().1 {
        last = usage().1;
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Runs commits and says their time, CPU and bytes, by operation.
fn commits(name: &str, count: u64, ops_each: f64, mut f: impl FnMut(u64)) {
    let (cpu, written, _) = usage();
    let mut times = Vec::new();
    for n in 0..count {
        let start = Instant::now();
        f(n);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    settle();
    let (cpu_after, written_after, _) = usage();
    let ops = count as f64 * ops_each;
    times.sort_unstable_by(f64::total_cmp);
    say(&format!("{name}: commit, ms, p50"), quantile(&times, 0.5));
    say(&format!("{name}: commit, ms, p99"), quantile(&times, 0.99));
    say(&format!("{name}: CPU, us per op"), (cpu_after - cpu) / ops);
    say(
        &format!("{name}: bytes written per op"),
        (written_after - written) as f64 / ops,
    );
}

fn gets(name: &str, index: &dyn Index, objects: u64, count: usize) {
    let s = index.snapshot().unwrap();
    let mut dice = rows::Dice(0x1234_5678_9abc);
    let mut times = Vec::new();
    for _ in 0..count {
        let key = rows::object_key(dice.below(objects));
        let start = Instant::now();
        assert!(s.get(Table::Objects, &key).unwrap().is_some());
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    say(&format!("{name}, us, p50"), quantile(&times, 0.5));
    say(&format!("{name}, us, p99"), quantile(&times, 0.99));
}

/// All objects in pages of 1000, as the store lists them; then the omap of some.
fn scans(index: &dyn Index, objects: u64) {
    let s = index.snapshot().unwrap();
    let start = Instant::now();
    let (mut from, mut found) = (Bound::Unbounded, 0u64);
    loop {
        let bound = from.as_ref().map(|k: &Vec<u8>| k.as_slice());
        let page = s
            .range(Table::Objects, bound, Bound::Unbounded)
            .unwrap()
            .take(1000);
        let keys: Vec<_> = page.map(|r| r.unwrap().0).collect();
        found += keys.len() as u64;
        match keys.last() {
            Some(k) if keys.len() == 1000 => from = Bound::Excluded(k.to_vec()),
            _ => break,
        }
    }
    assert_eq!(found, objects);
    say(
        "list, us per row",
        start.elapsed().as_secs_f64() * 1e6 / found as f64,
    );
    let mut dice = rows::Dice(77);
    let start = Instant::now();
    for _ in 0..2000 {
        let n = dice.below(objects / 8) * 8;
        let (a, b) = (rows::omap_key(n, 0), (n + 1).to_be_bytes());
        let rows = s
            .range(Table::Omap, Bound::Included(&a), Bound::Excluded(&b))
            .unwrap();
        assert_eq!(rows.count(), 8);
    }
    say(
        "omap of an object, us",
        start.elapsed().as_secs_f64() * 1e6 / 2000.0,
    );
}

fn uncache(dir: &Path) {
    let disk = HostDisk::new(dir);
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            uncache(&entry.path());
        } else {
            let file = disk.open(entry.file_name().to_str().unwrap()).unwrap();
            file.flush().unwrap();
            file.uncache(0, file.len().unwrap());
        }
    }
}

/// One step in a process of its own.
fn step(what: &str, s: &Setup) {
    let start = Instant::now();
    let index = s.open();
    let opened = start.elapsed().as_secs_f64() * 1e3;
    let mut dice = rows::Dice(88172645463325252);
    match what {
        "fill" => {
            let start = Instant::now();
            commits("create", s.objects / rows::CREATES, rows::CREATES as f64, |n| {
                rows::create(&*index, &mut dice, n * rows::CREATES, rows::CREATES).unwrap();
            });
            say("create: all, s", start.elapsed().as_secs_f64());
            say("size, bytes per object", s.disk_bytes() as f64 / s.objects as f64);
        }
        "overwrite" => {
            say("open after a clean end, ms", opened);
            let ops = rows::OVERWRITES as f64;
            commits("overwrite", OVERWRITE_CHECKPOINTS, ops, |n| {
                rows::overwrite(&*index, &mut dice, s.objects, 1000 + n).unwrap();
            });
            say(
                "size after overwrites, bytes per object",
                s.disk_bytes() as f64 / s.objects as f64,
            );
        }
        "churn" => {
            println!("ready");
            for n in 2000.. {
                rows::overwrite(&*index, &mut dice, s.objects, n).unwrap();
            }
        }
        "read" => {
            say("open after kill -9, ms", opened);
            gets("get, cold", &*index, s.objects, 2000);
            gets("get, warm-up", &*index, s.objects, 100_000);
            gets("get, warm", &*index, s.objects, 20_000);
            scans(&*index, s.objects);
        }
        "delete" => {
            let start = usage();
            let n = rows::delete(&*index, s.objects).unwrap() as f64;
            settle();
            say("delete: CPU, us per op", (usage().0 - start.0) / n);
            say("delete: bytes written per op", (usage().1 - start.1) as f64 / n);
            say(
                "size after deleting 9 of 10, bytes per object",
                s.disk_bytes() as f64 / s.objects as f64,
            );
        }
        "opened" => {
            say("open after deletes, ms", opened);
            settle();
            say(
                "size after that open, bytes per object",
                s.disk_bytes() as f64 / s.objects as f64,
            );
        }
        _ => panic!("no step {what}"),
    }
    say(&format!("memory, MiB, peak in {what}"), usage().2 / 1024.0);
}

fn command(what: &str, s: &Setup) -> Command {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.args(["step", what]).arg(&s.dir).arg(&s.engine);
    c.args([s.objects.to_string(), s.cache.to_string()]);
    c
}

type Figures = BTreeMap<String, f64>;

fn run(what: &str, s: &Setup, order: &mut Vec<String>, figures: &mut Figures) {
    let out = command(what, s).stderr(Stdio::inherit()).output().unwrap();
    assert!(
        out.status.success(),
        "{what} of {} ended with {}",
        s.engine,
        out.status
    );
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        if !order.iter().any(|o| o == name) {
            order.push(name.to_owned());
        }
        figures.insert(name.to_owned(), value.parse().unwrap());
    }
}

/// Overwrites until it is killed in the middle of it.
fn kill(s: &Setup) {
    let mut child = command("churn", s).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn round(s: &Setup, order: &mut Vec<String>) -> Figures {
    let mut figures = Figures::new();
    let _ = std::fs::remove_dir_all(s.dir.join(&s.engine));
    run("fill", s, order, &mut figures);
    run("overwrite", s, order, &mut figures);
    kill(s);
    uncache(&s.dir.join(&s.engine));
    run("read", s, order, &mut figures);
    run("delete", s, order, &mut figures);
    run("opened", s, order, &mut figures);
    let _ = std::fs::remove_dir_all(s.dir.join(&s.engine));
    figures
}

fn median(mut v: Vec<f64>) -> (f64, f64, f64) {
    v.sort_unstable_by(f64::total_cmp);
    (quantile(&v, 0.5), v[0], v[v.len() - 1])
}

fn report(order: &[String], engines: &[String], rounds: &[Vec<Figures>]) {
    println!(
        "| | {} | ratio to the first |\n|---|{}---|",
        engines.join(" | "),
        "---|".repeat(engines.len())
    );
    for name in order {
        let of = |e: usize| {
            rounds
                .iter()
                .filter_map(|r| r[e].get(name).copied())
                .collect::<Vec<_>>()
        };
        let cells: Vec<String> = (0..engines.len())
            .map(|e| {
                let (m, a, b) = median(of(e));
                format!("{m:.1} [{a:.1}-{b:.1}]")
            })
            .collect();
        let ratios: Vec<String> = (1..engines.len())
            .map(|e| {
                let pairs = rounds.iter().map(|r| r[e][name] / r[0][name]);
                format!("{:.2}", median(pairs.collect()).0)
            })
            .collect();
        println!("| {name} | {} | {} |", cells.join(" | "), ratios.join(", "));
    }
}

/// All processes started from now on, and this one, share so much memory.
fn limit_memory(mib: u64) -> PathBuf {
    let group = Path::new(CGROUPS).join(format!("skep-index-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    std::fs::write(group.join("memory.limit_in_bytes"), (mib << 20).to_string()).unwrap();
    std::fs::write(group.join("tasks"), std::process::id().to_string()).unwrap();
    group
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "step") {
        let setup = Setup {
            dir: args[2].clone().into(),
            engine: args[3].clone(),
            objects: args[4].parse().unwrap(),
            cache: args[5].parse().unwrap(),
        };
        return step(&args[1], &setup);
    }
    let option = |name: &str, or: &str| -> String {
        let found = args.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or(or).to_owned()
    };
    let list = |text: String| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let dir = PathBuf::from(args.first().expect("the directory to work in"));
    std::fs::create_dir_all(&dir).unwrap();
    let store: u64 = option("store", "0").parse().unwrap();
    if store > 0 {
        return layers::measure(&dir.join("store"), store);
    }
    let replay: u64 = option("replay", "0").parse().unwrap();
    if replay > 0 {
        return replay::measure(&dir.join("store"), replay, option("cold", "0") == "1");
    }
    let engines = list(option("engines", "redb,fjall"));
    let limit: u64 = option("limit", "0").parse().unwrap();
    let group = (limit > 0).then(|| limit_memory(limit));
    for objects in list(option("objects", "100000,1000000")) {
        let mut order = Vec::new();
        let setup = |engine: &String| Setup {
            dir: dir.clone(),
            engine: engine.clone(),
            // Whole checkpoints.
            objects: objects.parse::<u64>().unwrap() / rows::CREATES * rows::CREATES,
            cache: option("cache", "32").parse::<u64>().unwrap() << 20,
        };
        let rounds: Vec<Vec<Figures>> = (0..option("rounds", "3").parse().unwrap())
            .map(|_: u32| engines.iter().map(|e| round(&setup(e), &mut order)).collect())
            .collect();
        println!("\n{} objects\n", setup(&engines[0]).objects);
        report(&order, &engines, &rounds);
    }
    if let Some(group) = group {
        std::fs::write(Path::new(CGROUPS).join("tasks"), std::process::id().to_string()).unwrap();
        std::fs::remove_dir(group).unwrap();
    }
}
