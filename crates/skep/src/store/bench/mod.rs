//! `skep store bench`: the engine without network, in a directory of its own that goes at the end.
//!
//! What it measures is what the engine does, the making of the load and of the figures included (about a
//! microsecond an operation). Figures of a machine that others use say little: compare with `dev/bench/store`.

mod disk;
mod engine;
pub mod measure;
mod report;

use super::args::{Bench, Test};
use super::outcome::{Fail, Outcome, Verdict};
use crate::args::{DiskIo, Format};
use ::store::Options;
use disk::Counting;
use engine::{BLOCK, Engine, OBJECT};
use indicatif::ProgressBar;
use report::{Many, Results};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bench's own directory within the one that is named.
const OWN: &str = "skep-store-bench";
const FILES: [&str; 3] = ["block", "index", "seal"];
/// Free space wanted per byte of data: what is written again lies beside the old until a checkpoint.
const SPACE_FACTOR: u64 = 2;
const SPACE_BESIDE: u64 = 512 << 20;
/// Transactions under way while many objects are made.
const MANY_DEPTH: u32 = 32;
/// On disk, for each object of a block: the block, its row in the index, room to rewrite that.
const MANY_BYTES: u64 = BLOCK + 2048;

pub fn run(args: &Bench) -> Outcome {
    let own = Own::make(&args.dir)?;
    check_space(args, &own.path)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| Fail::Io("take care of signals".into(), e))?;
    }
    let mut results = Results {
        dir: args.dir.display().to_string(),
        size: args.size.max(OBJECT) / OBJECT * OBJECT,
        memory: args.memory.max(Options::MEMORY_MIN),
        disk_io: format!("{:?}", args.disk_io).to_lowercase(),
        ..Results::default()
    };
    let bench = Running {
        args,
        own: &own,
        stop: stop.clone(),
        bar: crate::up::spinner("making the store"),
    };
    bench.data(&mut results)?;
    if args.objects > 0 && !stop.load(Ordering::Relaxed) {
        own.clear()?;
        bench.many(&mut results)?;
    }
    bench.bar.finish_and_clear();
    results.interrupted = stop.load(Ordering::Relaxed);
    own.remove()?;
    let out = &mut std::io::stdout().lock();
    match args.format {
        Format::Plain => results.plain(out),
        Format::Json => results.json(out),
    }
    .map_err(Fail::output)?;
    Ok(Verdict::Good)
}

struct Running<'a> {
    args: &'a Bench,
    own: &'a Own,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Running<'_> {
    fn engine(&self) -> Result<Engine, Fail> {
        let mode = match self.args.disk_io {
            DiskIo::Auto => io::disk::Mode::Auto,
            DiskIo::Direct => io::disk::Mode::Direct,
            DiskIo::Plain => io::disk::Mode::Plain,
        };
        let options = Options {
            host_reserve_bytes: 0,
            keys: super::keys::of(self.args.keys.as_deref())?,
            ..Options::for_memory(self.args.memory)
        };
        let disk = Counting::new(&self.own.path, mode);
        disk.create_dir()
            .map_err(|e| Fail::path("make", &self.own.path, e))?;
        Engine::make(disk, &options, self.args.size, self.stop.clone())
    }

    fn wants(&self, test: Test) -> bool {
        self.args.only.contains(&test) && !self.stop.load(Ordering::Relaxed)
    }

    fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    fn data(&self, results: &mut Results) -> Result<(), Fail> {
        let time = Duration::from_secs(self.args.time);
        let mut e = self.engine()?;
        self.say("writing the data".into());
        let filled = e.fill()?;
        if self.wants(Test::SequentialWrite) {
            results.measured.push(filled);
            self.say("4 MiB writes".into());
            results.measured.push(e.sequential_write(time)?);
        }
        for depth in &self.args.depth {
            if self.wants(Test::Overwrite) {
                self.say(format!("4 KiB overwrites, depth {depth}"));
                results.measured.push(e.overwrite(*depth, time)?);
            }
        }
        for depth in &self.args.depth {
            if self.wants(Test::ReadCold) {
                self.say(format!("4 KiB reads, cold, depth {depth}"));
                e = self.cool(e, results)?;
                results.measured.push(e.read_cold(*depth, time)?);
            }
        }
        for depth in &self.args.depth {
            if self.wants(Test::ReadWarm) {
                self.say(format!("4 KiB reads, warm, depth {depth}"));
                results.measured.push(e.read_warm(*depth, time)?);
            }
        }
        if self.wants(Test::SequentialRead) {
            self.say("4 MiB reads".into());
            e = self.cool(e, results)?;
            results.measured.push(e.sequential_read(time)?);
        }
        drop(e);
        Ok(())
    }

    /// The times of the first of them count: later ones find nothing to write.
    fn cool(&self, e: Engine, results: &mut Results) -> Result<Engine, Fail> {
        let (e, close, open) = e.cool()?;
        results.close_seconds.get_or_insert(close);
        results.open_seconds.get_or_insert(open);
        Ok(e)
    }

    fn many(&self, results: &mut Results) -> Result<(), Fail> {
        let objects = self.args.objects;
        let mut e = self.engine()?;
        self.say(format!("making {objects} objects"));
        results.measured.push(e.make_small(objects, MANY_DEPTH)?);
        self.say("starting after a kill".into());
        let (e, replay_seconds, replayed) = e.crash()?;
        let (list_seconds, listed) = e.list()?;
        if listed != objects && !self.stop.load(Ordering::Relaxed) {
            return Err(Fail::Usage(format!("{listed} objects listed, {objects} made")));
        }
        self.say("a clean stop and start".into());
        let (e, close_seconds, open_seconds) = e.cool()?;
        results.many = Some(Many {
            objects,
            replay_seconds,
            replayed,
            list_seconds,
            listed,
            close_seconds,
            open_seconds,
            resident_bytes: io::files::resident_bytes().unwrap_or(0),
        });
        drop(e);
        Ok(())
    }
}

fn check_space(args: &Bench, path: &Path) -> Result<(), Fail> {
    use io::disk::Disk;
    let parent = path.parent().unwrap_or(path);
    let space = Counting::new(parent, io::disk::Mode::Plain)
        .space()
        .map_err(|e| Fail::path("ask for the free space of", parent, e))?;
    let data = args.size.saturating_mul(SPACE_FACTOR);
    let want = data
        .max(args.objects.saturating_mul(MANY_BYTES))
        .saturating_add(SPACE_BESIDE);
    if space.available < want {
        let (want, have) = (super::text::bytes(want), super::text::bytes(space.available));
        return Err(Fail::Usage(format!(
            "{} has {have} free, and this needs {want}: use a smaller --size or --objects",
            parent.display()
        )));
    }
    Ok(())
}

/// The directory of this run; it goes when the run ends, also by an error.
struct Own {
    path: PathBuf,
}

impl Own {
    /// `dir` must hold nothing of anyone else's; what a bench left that was killed goes.
    fn make(dir: &Path) -> Result<Self, Fail> {
        io::files::make_dir(dir).map_err(|e| Fail::path("make", dir, e))?;
        let names = io::files::list_dir(dir).map_err(|e| Fail::path("list", dir, e))?;
        let foreign = names.iter().find(|n| *n != OWN && *n != "lost+found");
        if let Some(name) = foreign {
            return Err(Fail::Usage(format!(
                "{} is not empty: it has {name:?}; name a directory that is new or empty",
                dir.display()
            )));
        }
        let own = Self { path: dir.join(OWN) };
        if let Some(pid) = io::files::locked_by(&own.path.join(FILES[0])) {
            std::mem::forget(own);
            return Err(Fail::Usage(format!("another bench runs there: pid {pid}")));
        }
        own.clear()?;
        Ok(own)
    }

    fn clear(&self) -> Result<(), Fail> {
        for name in FILES {
            let path = self.path.join(name);
            io::files::remove(&path).map_err(|e| Fail::path("remove", &path, e))?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), Fail> {
        self.clear()?;
        match std::fs::remove_dir(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Fail::path("remove", &self.path, e)),
            _ => Ok(()),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
