//! Who asked for what: a record of every command that changes something or shows a secret, of every pool operation, and of what
//! was refused.
//!
//! A record goes to a file of its own ([`AuditFile`]), written by a thread that nobody waits for, and to the channel `audit` of
//! the cluster log: with the change itself, in one commit, or, where nothing was changed, with the next round of chores
//! ([`Pending`]). Operations on self-managed snapshots go to the file only: a client makes many.
//!
//! Secrets are left out where the record is made: arguments that the table of commands marks, and all input.
//!
//! Bounds: [`FILE_QUEUE_MAX`] lines wait for the file, [`PENDING_MAX`] for the cluster log; what is beyond is counted, and the
//! count said. Of what was refused, [`REFUSALS_PER_WINDOW`] lines a client in [`WINDOW_SEC`].

use crate::commands;
use crate::shell::requests::{Action, Reply, Request, Route};
use io::log_file::LogFile;
use messages::mon::PoolOpKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use types::clusterlog::LogLevel;
use types::{AuthName, Errno, Utime};

const FILE_QUEUE_MAX: usize = 1024;
/// Bytes of one file, and how many older ones are kept.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES_KEPT: u32 = 7;
const PENDING_MAX: usize = 64;
/// Refused attempts of one client that are written in full, in so many seconds.
pub const REFUSALS_PER_WINDOW: u32 = 10;
pub const WINDOW_SEC: u32 = 10;
/// Clients whose refusals are counted apart in one window; the rest share one count.
const CLIENTS_MAX: usize = 1024;

/// One thing that was asked, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub stamp: Utime,
    pub who: String,
    pub global_id: u64,
    /// The address that its packets come from.
    pub from: String,
    pub route: &'static str,
    /// Without secrets.
    pub what: Value,
    /// 0 or a negative errno.
    pub code: i32,
    /// It may show itself in the cluster log.
    pub in_log: bool,
}

/// Text from clients is kept from taking a line apart, or a terminal over: printable ASCII only.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        match c {
            ' '..='~' => out.push(c),
            c => c
                .encode_utf16(&mut units)
                .iter()
                .for_each(|u| out.push_str(&format!("\\u{u:04x}"))),
        }
    }
    out
}

impl Record {
    /// Of a request that has its answer; None if nobody needs to know.
    pub fn of(request: &Request, reply: &Reply, now: Utime) -> Option<Self> {
        let (route, what, in_log) = match &request.action {
            Action::Command { route, command } => {
                let refused = reply.code == Errno::EACCES.code();
                if !refused && !commands::is_audited(command) {
                    return None;
                }
                (route.name(), commands::without_secrets(command), true)
            }
            Action::PoolOp { op, .. } => {
                let kind = PoolOpKind::from_u32(op.op);
                let snapshot = matches!(
                    kind,
                    Some(PoolOpKind::CreateSelfManagedSnap | PoolOpKind::RemoveSelfManagedSnap)
                );
                let name: String = op.name.chars().take(commands::SHOWN_CHARS_MAX).collect();
                let what = json!({
                    "pool_op": kind.map_or(format!("{:#x}", op.op), |k| format!("{k:?}")),
                    "pool": op.pool, "name": name, "snap": op.snapid,
                });
                ("message", what, !snapshot || reply.code == Errno::EPERM.code())
            }
            Action::Log { .. } => return None,
        };
        Some(Self {
            stamp: now,
            who: request.who.to_string(),
            global_id: request.global_id,
            from: request.sock.to_string(),
            route,
            what,
            code: reply.code,
            in_log,
        })
    }

    /// Of what came by the admin socket: who may open it may do all.
    pub fn of_admin_socket(what: Value, code: i32, now: Utime) -> Self {
        Self {
            stamp: now,
            who: "admin socket".into(),
            global_id: 0,
            from: "this host".into(),
            route: "admin socket",
            what,
            code,
            in_log: true,
        }
    }

    pub fn is_refusal(&self) -> bool {
        [Errno::EACCES.code(), Errno::EPERM.code()].contains(&self.code)
    }

    fn outcome(&self) -> &'static str {
        match self.code {
            0 => "done",
            _ if self.is_refusal() => "refused",
            _ => "failed",
        }
    }

    /// One line of the file: a JSON object.
    pub fn line(&self) -> String {
        let line = json!({
            "time": self.stamp.to_string(), "who": self.who, "global_id": self.global_id, "from": self.from,
            "door": self.route, "what": self.what, "code": self.code, "outcome": self.outcome(),
        });
        ascii(&line.to_string()) + "\n"
    }

    pub fn level(&self) -> LogLevel {
        match self.is_refusal() {
            true => LogLevel::Security,
            false => LogLevel::Info,
        }
    }

    /// As it stands in the cluster log, in Ceph's form.
    pub fn text(&self) -> String {
        let end = match self.code {
            0 => "finished".to_string(),
            code => format!("{} ({code})", self.outcome()),
        };
        let (from, who) = (&self.from, &self.who);
        let text = format!(
            "from='client.{} {from}' entity='{who}' cmd=[{}]: {end}",
            self.global_id, self.what
        );
        ascii(&text)
    }
}

impl Route {
    fn name(&self) -> &'static str {
        match self {
            Self::Mon { .. } => "mon",
            Self::Tell => "tell mon",
            Self::MgrTell => "tell mgr",
            Self::Mgr => "mgr",
        }
    }
}

/// How many refusals of each client were written in this window, and how many were not.
#[derive(Debug, Default)]
pub struct Refusals {
    since: u32,
    counts: BTreeMap<Option<AuthName>, u32>,
}

impl Refusals {
    /// Whether one more of `who` is written in full.
    pub fn take(&mut self, who: &AuthName, now: Utime) -> bool {
        if self.counts.is_empty() {
            self.since = now.sec;
        }
        let own = Some(who.clone());
        let key = match self.counts.contains_key(&own) || self.counts.len() < CLIENTS_MAX {
            true => own,
            false => None,
        };
        let n = self.counts.entry(key).or_default();
        *n = n.saturating_add(1);
        *n <= REFUSALS_PER_WINDOW
    }

    /// At the window's end: what was left out, in words.
    pub fn left_out(&mut self, now: Utime) -> Vec<String> {
        if now.sec.abs_diff(self.since) < WINDOW_SEC {
            return Vec::new();
        }
        let counts = std::mem::take(&mut self.counts).into_iter();
        let more = counts.filter(|(_, n)| *n > REFUSALS_PER_WINDOW);
        more.map(|(who, n)| {
            let who = who.map_or("other clients".to_string(), |w| w.to_string());
            format!("{} more refused attempts of {who}", n - REFUSALS_PER_WINDOW)
        })
        .collect()
    }
}

/// What waits to be told to the cluster log.
#[derive(Debug, Default)]
pub struct Pending {
    lines: Vec<(LogLevel, String)>,
    lost: u64,
}

impl Pending {
    pub fn push(&mut self, level: LogLevel, text: String) {
        match self.lines.len() < PENDING_MAX {
            true => self.lines.push((level, text)),
            false => self.lost += 1,
        }
    }

    pub fn take(&mut self) -> Vec<(LogLevel, String)> {
        let mut out = std::mem::take(&mut self.lines);
        if self.lost > 0 {
            let text = format!("{} more lines are in the monitor's audit file only", self.lost);
            out.push((LogLevel::Security, text));
            self.lost = 0;
        }
        out
    }
}

/// The monitor's part: what it keeps records of, and where they go.
#[derive(Debug, Default)]
pub struct Records {
    pub file: Option<AuditFile>,
    refusals: Refusals,
    pending: Pending,
}

impl Records {
    /// A request that changed something: the cluster log has its record with the change.
    pub fn changed(&mut self, request: &Request, reply: &Reply, now: Utime) {
        if let (Some(file), Some(record)) = (&self.file, Record::of(request, reply, now)) {
            file.write(&record);
        }
    }

    /// One that was answered without a change.
    pub fn unchanged(&mut self, request: &Request, reply: &Reply, now: Utime) {
        match Record::of(request, reply, now) {
            Some(record) if record.is_refusal() => self.limited(record, &request.who, now),
            Some(record) => self.keep(record),
            None => {}
        }
    }

    /// One that was refused before it was decided.
    pub fn refused(&mut self, request: &Request, reply: &Reply, now: Utime) {
        if let Some(record) = Record::of(request, reply, now) {
            self.limited(record, &request.who, now);
        }
    }

    fn limited(&mut self, record: Record, who: &AuthName, now: Utime) {
        if self.refusals.take(who, now) {
            self.keep(record);
        }
    }

    pub fn keep(&mut self, record: Record) {
        if let Some(file) = &self.file {
            file.write(&record);
        }
        if record.in_log {
            self.pending.push(record.level(), record.text());
        }
    }

    /// What the cluster log is to be told now.
    pub fn waiting(&mut self, now: Utime) -> Vec<(LogLevel, String)> {
        for text in self.refusals.left_out(now) {
            if let Some(file) = &self.file {
                file.say(now, &text);
            }
            self.pending.push(LogLevel::Security, text);
        }
        self.pending.take()
    }
}

/// The file's side for those that write to it; never waits.
#[derive(Debug, Clone)]
pub struct AuditFile {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

impl AuditFile {
    /// The file is opened with its first line: one that cannot be is said in the log, and keeps nobody from serving.
    pub fn start(path: &Path) -> std::io::Result<Self> {
        let (lines, wanted) = sync_channel(FILE_QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let (path, counter) = (path.to_path_buf(), lost.clone());
        io::thread::spawn("audit", move || write_all(path, &wanted, &counter))?;
        Ok(Self { lines, lost })
    }

    pub fn write(&self, record: &Record) {
        self.write_line(record.line());
    }

    pub fn say(&self, now: Utime, text: &str) {
        let line = json!({"time": now.to_string(), "note": text});
        self.write_line(ascii(&line.to_string()) + "\n");
    }

    fn write_line(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread's work, until nobody writes any more.
fn write_all(path: PathBuf, wanted: &Receiver<String>, lost: &AtomicU64) {
    let mut file = LogFile::new(&path, FILE_BYTES_MAX, FILES_KEPT);
    let mut failing = false;
    for line in wanted {
        io::panics::point("audit");
        let missed = lost.load(Ordering::Relaxed);
        let note = match missed {
            0 => String::new(),
            n => json!({"note": format!("{n} lines are missing here")}).to_string() + "\n",
        };
        match file.append((note + &line).as_bytes()) {
            Ok(()) => {
                lost.fetch_sub(missed, Ordering::Relaxed);
                if failing {
                    tracing::warn!(
                        "{} can be written again; {missed} lines are missing",
                        path.display()
                    );
                }
                failing = false;
            }
            Err(e) => {
                lost.fetch_add(1, Ordering::Relaxed);
                if !failing {
                    tracing::error!(
                        "{} cannot be written, what is asked of the monitor leaves no trace there: {e}",
                        path.display()
                    );
                }
                failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityKind;

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    fn record(who: &str, what: Value) -> Record {
        Record {
            stamp: at(1_700_000_000),
            who: who.into(),
            global_id: 7,
            from: "10.0.0.1:4000".into(),
            route: "mon",
            what,
            code: 0,
            in_log: true,
        }
    }

    /// A client's words must not look like a line of ours.
    #[test]
    fn a_record_is_one_line_whatever_the_client_says() {
        let nasty = "x\n{\"time\":\"now\"}\r\u{1b}[2J\u{202e}\u{1f600}";
        let r = record(nasty, json!({"prefix": "log", "logtext": [nasty]}));
        for text in [r.line(), r.text()] {
            let body = text.trim_end_matches('\n');
            assert!(body.chars().all(|c| (' '..='~').contains(&c)), "{body}");
        }
        let back: Value = serde_json::from_str(&r.line()).unwrap();
        assert_eq!(back["what"]["logtext"][0], nasty, "and says it all the same");
    }

    #[test]
    fn refusals_are_counted_beyond_some() {
        let mut r = Refusals::default();
        let who = |n: usize| AuthName::new(EntityKind::Client, format!("c{n}"));
        let full = (0..100).filter(|_| r.take(&who(1), at(50))).count();
        assert_eq!(full, REFUSALS_PER_WINDOW as usize);
        assert!(r.take(&who(2), at(51)), "another client's are written");
        assert!(r.left_out(at(55)).is_empty());
        assert_eq!(r.left_out(at(60)), ["90 more refused attempts of client.c1"]);
        assert!(r.take(&who(1), at(61)));
        // Names without end take no room without end.
        for n in 0..10_000 {
            r.take(&who(n), at(61));
        }
        assert!(r.counts.len() <= CLIENTS_MAX + 1);
    }

    #[test]
    fn what_waits_for_the_log_is_bounded() {
        let mut p = Pending::default();
        for n in 0..1000 {
            p.push(LogLevel::Info, format!("{n}"));
        }
        let lines = p.take();
        assert_eq!(lines.len(), PENDING_MAX + 1);
        assert_eq!(
            lines[PENDING_MAX].1,
            "936 more lines are in the monitor's audit file only"
        );
        assert!(p.take().is_empty());
    }

    /// A disk that takes nothing must not hold up the monitor; what was lost is said when it takes something again.
    #[test]
    fn a_file_that_cannot_be_written_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone/audit.log");
        let file = AuditFile::start(&path).unwrap();
        for _ in 0..3 * FILE_QUEUE_MAX {
            file.write(&record("client.a", json!({})));
        }
        let until = |what: &dyn Fn() -> bool| {
            for _ in 0..12_000 {
                if what() {
                    return;
                }
                crate::tests::block_on(async { io::task::sleep(std::time::Duration::from_millis(5)).await });
            }
            panic!("never");
        };
        until(&|| file.lost.load(Ordering::Relaxed) == 3 * FILE_QUEUE_MAX as u64);
        io::files::make_dir(&dir.path().join("gone")).unwrap();
        file.write(&record("client.b", json!({})));
        until(&|| {
            io::files::read(&path)
                .unwrap()
                .is_some_and(|t| t.contains("client.b"))
        });
        let text = io::files::read(&path).unwrap().unwrap();
        assert!(
            text.starts_with("{\"note\":\"3072 lines are missing here\"}\n"),
            "{text}"
        );
    }
}
