//! Work on images that the cluster does by itself (Ceph's manager module `rbd_support`): tasks that somebody added, and
//! schedules of emptying the trash and of snapshots for mirroring. What is kept of them, as JSON under keys of the store of keys and values.
//!
//! Vocabulary: a *task* is done once, after those that were added before it; a *level* is where a schedule holds: everywhere,
//! a pool, a namespace of it, an image. The nearest level with a schedule is the one that counts.
//!
//! Not here: who does it (`rbd_support`, the crate), and how it is asked for (`mon`).

use crate::state::ClusterState;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use types::{PoolId, Utime};

/// Followed by the task's id.
const TASK_PREFIX: &str = "mgr/rbd_support/task/";
pub const TRASH_PURGE_KEY: &str = "mgr/rbd_support/trash_purge_schedule";
pub const MIRROR_SNAPSHOT_KEY: &str = "mgr/rbd_support/mirror_snapshot_schedule";
/// Tasks that may wait.
pub const TASKS_MAX: usize = 1000;
/// Levels with a schedule, and rows of one.
pub const LEVELS_MAX: usize = 1000;
pub const ROWS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

impl Action {
    const ALL: [Self; 6] = [
        Self::Flatten,
        Self::Remove,
        Self::TrashRemove,
        Self::MigrationExecute,
        Self::MigrationCommit,
        Self::MigrationAbort,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Flatten => "flatten",
            Self::Remove => "remove",
            Self::TrashRemove => "trash remove",
            Self::MigrationExecute => "migrate execute",
            Self::MigrationCommit => "migrate commit",
            Self::MigrationAbort => "migrate abort",
        }
    }

    pub fn is_migration(self) -> bool {
        matches!(
            self,
            Self::MigrationExecute | Self::MigrationCommit | Self::MigrationAbort
        )
    }
}

/// An image that takes part in a migration, whatever becomes of its name; of format 1: without an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pool: PoolId,
    pub pool_name: String,
    pub namespace: String,
    pub name: String,
    pub id: String,
}

impl Place {
    fn json(&self) -> Value {
        json!({
            "pool_id": self.pool,
            "pool_name": self.pool_name,
            "pool_namespace": self.namespace,
            "image_name": self.name,
            "image_id": self.id,
        })
    }

    fn from_json(v: &Value) -> Option<Self> {
        let text = |v: &Value| v.as_str().map(str::to_string);
        Some(Self {
            pool: v["pool_id"].as_i64()?,
            pool_name: text(&v["pool_name"])?,
            namespace: text(&v["pool_namespace"])?,
            name: text(&v["image_name"])?,
            id: text(&v["image_id"])?,
        })
    }
}

/// `rbd/ns/image`
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{}/{}", self.pool_name, self.name),
            ns => write!(f, "{}/{ns}/{}", self.pool_name, self.name),
        }
    }
}

/// The two images of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    pub source: Place,
    pub target: Place,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub sequence: u64,
    pub id: String,
    pub action: Action,
    pub pool: PoolId,
    pub pool_name: String,
    pub namespace: String,
    /// Of an image in the trash: the name that it had.
    pub image_name: String,
    pub image_id: String,
    /// Of a migration, whose image is named by either side; its id is the target's.
    pub sides: Option<Box<Sides>>,
    /// Runs that failed.
    pub failures: u64,
    /// Why the last one did, and when the next may begin (seconds since 1970).
    pub why: Option<String>,
    pub retry_at: u64,
}

impl Task {
    /// `Flattening image rbd/c`
    pub fn message(&self) -> String {
        let place = match self.namespace.as_str() {
            "" => self.pool_name.clone(),
            ns => format!("{}/{ns}", self.pool_name),
        };
        match self.action {
            Action::Flatten => format!("Flattening image {place}/{}", self.image_name),
            Action::Remove => format!("Removing image {place}/{}", self.image_name),
            Action::TrashRemove => format!("Removing image {place}/{} from trash", self.image_id),
            Action::MigrationExecute => match &self.sides {
                Some(sides) => format!("Migrating image {} to {}", sides.source, sides.target),
                None => format!("Migrating image {place}/{}", self.image_name),
            },
            Action::MigrationCommit => {
                format!("Committing image migration for {place}/{}", self.image_name)
            }
            Action::MigrationAbort => {
                format!("Aborting image migration for {place}/{}", self.image_name)
            }
        }
    }

    pub fn key(&self) -> String {
        key_of(&self.id)
    }

    pub fn refs(&self) -> Value {
        let mut refs = Map::new();
        refs.insert("action".into(), self.action.name().into());
        refs.insert("pool_name".into(), self.pool_name.clone().into());
        refs.insert("pool_namespace".into(), self.namespace.clone().into());
        if self.action != Action::TrashRemove {
            refs.insert("image_name".into(), self.image_name.clone().into());
        }
        refs.insert("image_id".into(), self.image_id.clone().into());
        Value::Object(refs)
    }

    /// As `rbd task list` shows it.
    pub fn shown(&self) -> Value {
        json!({
            "sequence": self.sequence,
            "id": self.id,
            "message": self.message(),
            "refs": self.refs(),
        })
    }

    pub fn value(&self) -> Bytes {
        let mut all = self.shown();
        all["pool_id"] = self.pool.into();
        all["image_name"] = self.image_name.clone().into();
        all["failures"] = self.failures.into();
        all["why"] = json!(self.why);
        all["retry_at"] = self.retry_at.into();
        if let Some(sides) = &self.sides {
            all["source"] = sides.source.json();
            all["target"] = sides.target.json();
        }
        Bytes::from(all.to_string())
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        let v: Value = serde_json::from_slice(raw).ok()?;
        let text = |v: &Value| v.as_str().map(str::to_string);
        let refs = &v["refs"];
        let sides = || {
            Some(Box::new(Sides {
                source: Place::from_json(&v["source"])?,
                target: Place::from_json(&v["target"])?,
            }))
        };
        Some(Self {
            sides: sides(),
            sequence: v["sequence"].as_u64()?,
            id: text(&v["id"])?,
            action: Action::ALL.into_iter().find(|a| refs["action"] == a.name())?,
            pool: v["pool_id"].as_i64()?,
            pool_name: text(&refs["pool_name"])?,
            namespace: text(&refs["pool_namespace"])?,
            image_name: text(&v["image_name"])?,
            image_id: text(&refs["image_id"])?,
            failures: v["failures"].as_u64()?,
            why: text(&v["why"]),
            retry_at: v["retry_at"].as_u64()?,
        })
    }
}

fn key_of(id: &str) -> String {
    format!("{TASK_PREFIX}{id}")
}

pub fn task(state: &ClusterState, id: &str) -> Option<Task> {
    Task::parse(state.config_keys.get(&key_of(id))?)
}

/// In the order in which they were added.
pub fn tasks(state: &ClusterState) -> Vec<Task> {
    let from = TASK_PREFIX.to_string();
    let rows = state.config_keys.range(from..);
    let rows = rows.take_while(|(k, _)| k.starts_with(TASK_PREFIX));
    let mut out: Vec<Task> = rows.filter_map(|(_, raw)| Task::parse(raw)).collect();
    out.sort_by_key(|t| t.sequence);
    out
}

/// Where a schedule holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Level {
    /// None: everywhere.
    pub pool: Option<PoolId>,
    pub namespace: String,
    /// An image's id; empty: all of the namespace.
    pub image: String,
}

impl Level {
    pub fn everywhere() -> Self {
        Self::default()
    }

    pub fn of_pool(pool: PoolId) -> Self {
        Self {
            pool: Some(pool),
            ..Self::default()
        }
    }

    pub fn of_namespace(pool: PoolId, namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            ..Self::of_pool(pool)
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (pool, rest) = text.split_once('/').unwrap_or((text, ""));
        let (namespace, image) = rest.split_once('/').unwrap_or((rest, ""));
        let pool = match pool {
            "" => None,
            n => Some(n.parse().ok()?),
        };
        Some(Self {
            pool,
            namespace: namespace.into(),
            image: image.into(),
        })
    }
}

impl From<&crate::ImageKey> for Level {
    fn from(key: &crate::ImageKey) -> Self {
        Self {
            image: key.id.clone(),
            ..Self::of_namespace(key.pool, &key.namespace)
        }
    }
}

/// As lists of schedules name it: `2`, `2/ns`, `2//102a3` for an image.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pool, self.namespace.as_str(), self.image.as_str()) {
            (None, _, _) => Ok(()),
            (Some(pool), "", "") => write!(f, "{pool}"),
            (Some(pool), ns, "") => write!(f, "{pool}/{ns}"),
            (Some(pool), ns, image) => write!(f, "{pool}/{ns}/{image}"),
        }
    }
}

/// Every so many minutes, counted from a time of the day (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub minutes: u64,
    /// Minutes after midnight.
    pub start: Option<u64>,
}

const DAY: u64 = 24 * 60;

impl Row {
    /// `15m`, `2h`, `1d`; a bare number counts minutes, as in the real one.
    pub fn interval(text: &str) -> Option<u64> {
        let (number, unit) = match text.chars().last()? {
            'd' => (&text[..text.len() - 1], DAY),
            'h' => (&text[..text.len() - 1], 60),
            'm' => (&text[..text.len() - 1], 1),
            _ => (text, 1),
        };
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let minutes = number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(unit)?;
        (minutes > 0 && minutes <= 366 * DAY).then_some(minutes)
    }

    /// `14:00`, `14:00:00`.
    pub fn start(text: &str) -> Option<u64> {
        let mut parts = text.split(':');
        let mut next = |max: u64| parts.next()?.parse::<u64>().ok().filter(|n| *n < max);
        let (hour, minute) = (next(24)?, next(60)?);
        let rest: Vec<&str> = parts.collect();
        let whole = matches!(rest[..], [] | ["00"] | ["0"]);
        whole.then_some(hour * 60 + minute)
    }

    pub fn interval_text(&self) -> String {
        match self.minutes {
            m if m % DAY == 0 => format!("{}d", m / DAY),
            m if m % 60 == 0 => format!("{}h", m / 60),
            m => format!("{m}m"),
        }
    }

    fn json(&self) -> Value {
        let start = self.start.map(|m| format!("{:02}:{:02}:00", m / 60, m % 60));
        json!({"interval": self.interval_text(), "start_time": start})
    }

    fn from_json(v: &Value) -> Option<Self> {
        let start = match v["start_time"].as_str() {
            Some(text) => Some(Self::start(text)?),
            None => None,
        };
        Some(Self {
            minutes: Self::interval(v["interval"].as_str()?)?,
            start,
        })
    }

    /// The first time after `now` (seconds since 1970) at which it is due.
    pub fn next_after(&self, now: u64) -> u64 {
        let (period, first) = (self.minutes * 60, self.start.unwrap_or(0) * 60);
        match now.checked_sub(first) {
            None => first,
            Some(since) => first + (since / period + 1) * period,
        }
    }
}

/// Of all levels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedules {
    pub levels: BTreeMap<Level, Vec<Row>>,
    /// Of images with one: as they were called when it was added.
    pub names: BTreeMap<Level, String>,
}

impl Schedules {
    pub fn of(state: &ClusterState, key: &str) -> Self {
        state.config_keys.get(key).map(Self::parse).unwrap_or_default()
    }

    fn parse(raw: &Bytes) -> Self {
        let value = serde_json::from_slice::<Value>(raw).ok();
        let Some(Value::Object(levels)) = value else {
            return Self::default();
        };
        let rows = |v: &Value| -> Vec<Row> {
            let list = v.as_array().into_iter().flatten();
            list.filter_map(Row::from_json).collect()
        };
        let mut all = Self::default();
        for (level, v) in levels.iter() {
            let Some(level) = Level::parse(level) else {
                continue;
            };
            if let Some(name) = v["name"].as_str() {
                all.names.insert(level.clone(), name.into());
            }
            let list = if v.is_array() { v } else { &v["schedule"] };
            all.levels.insert(level, rows(list));
        }
        all
    }

    pub fn value(&self) -> Bytes {
        let one = |(level, rows): (&Level, &Vec<Row>)| {
            let rows = rows_json(rows);
            let value = match self.names.get(level) {
                Some(name) => json!({"name": name, "schedule": rows}),
                None => rows,
            };
            (level.to_string(), value)
        };
        let all: Map<String, Value> = self.levels.iter().map(one).collect();
        Bytes::from(Value::Object(all).to_string())
    }

    /// The rows of the nearest level, and that level.
    pub fn nearest(&self, level: &Level) -> Option<(&Level, &Vec<Row>)> {
        let pool = level.pool.map(Level::of_pool);
        let namespace = level.pool.map(|p| Level::of_namespace(p, &level.namespace));
        let levels = [Some(level.clone()), namespace, pool, Some(Level::everywhere())];
        let mut found = levels
            .iter()
            .flatten()
            .filter_map(|l| self.levels.get_key_value(l));
        found.find(|(_, rows)| !rows.is_empty())
    }

    /// When it is due next there, after `now` (seconds since 1970).
    pub fn next_after(&self, level: &Level, now: u64) -> Option<u64> {
        let (_, rows) = self.nearest(level)?;
        rows.iter().map(|r| r.next_after(now)).min()
    }
}

pub fn rows_json(rows: &[Row]) -> Value {
    rows.iter().map(Row::json).collect()
}

/// What an image is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A new task of this kind.
    Task(Action),
    /// A schedule of snapshots for mirroring.
    Mirroring,
    /// Limits of what clients may do to it.
    Limits,
}

/// An image that somebody names, to be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub about: About,
    pub pool: PoolId,
    pub namespace: String,
    /// Its name, or its id in the trash.
    pub image: String,
}

/// An image that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Where limits are set, the number of the pool of its data in its place.
    pub name: String,
    pub id: String,
    /// Only where a migration was asked for.
    pub sides: Option<Box<Sides>>,
}

impl Subject {
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            id: id.into(),
            sides: None,
        }
    }
}

pub type Found = Result<Subject, (types::Errno, String)>;

/// What the one who works tells the others in this process. Nothing of it is stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Live {
    /// The task under way.
    pub running: Option<Running>,
    /// Names of images by pool, namespace and id, as far as somebody needed them.
    pub names: BTreeMap<crate::ImageKey, String>,
    /// Tasks that ended, newest last; at most [`ENDED_MAX`].
    pub ended: Vec<Ended>,
    /// Why nothing is done, if so.
    pub trouble: Option<String>,
    /// Namespaces with images by pool, as far as schedules need them.
    pub namespaces: BTreeMap<PoolId, Vec<String>>,
    /// Names of images with a schedule of snapshots for mirroring, as far as they take part in it.
    pub mirrored: BTreeMap<crate::ImageKey, String>,
}

pub const ENDED_MAX: usize = 50;

#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    pub task: Task,
    pub started: Utime,
    /// From 0 to 1.
    pub progress: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub task: Task,
    pub started: Utime,
    pub finished: Utime,
    /// Why it was given up.
    pub failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            sequence: 3,
            id: "ea36460d-6240-4e6b-850a-9e6f7d490eef".into(),
            action: Action::TrashRemove,
            pool: 2,
            pool_name: "rbd".into(),
            namespace: "ns".into(),
            image_name: "c".into(),
            image_id: "10ab".into(),
            sides: None,
            failures: 1,
            why: Some("it is \"busy\"".into()),
            retry_at: 77,
        }
    }

    #[test]
    fn a_task_is_what_was_kept_of_it() {
        let t = task();
        assert_eq!(Task::parse(&t.value()), Some(t.clone()));
        assert_eq!(t.message(), "Removing image rbd/ns/10ab from trash");
        assert_eq!(Task::parse(&Bytes::from_static(b"{}")), None);
        assert_eq!(Task::parse(&Bytes::from_static(b"no json")), None);
        let place = |pool, pool_name: &str, namespace: &str, name: &str, id: &str| Place {
            pool,
            pool_name: pool_name.into(),
            namespace: namespace.into(),
            name: name.into(),
            id: id.into(),
        };
        let mut of_migration = Task {
            action: Action::MigrationExecute,
            sides: Some(Box::new(Sides {
                source: place(2, "rbd", "ns", "c", ""),
                target: place(3, "ssd", "", "d", "10ab"),
            })),
            ..t
        };
        assert_eq!(Task::parse(&of_migration.value()), Some(of_migration.clone()));
        assert_eq!(of_migration.message(), "Migrating image rbd/ns/c to ssd/d");
        assert_eq!(of_migration.refs()["action"], "migrate execute");
        of_migration.action = Action::MigrationAbort;
        assert_eq!(of_migration.message(), "Aborting image migration for rbd/ns/c");
    }

    #[test]
    fn intervals_and_times_are_read_strictly() {
        let minutes = |text| Row::interval(text);
        assert_eq!(
            ["1d", "2h", "15m", "7"].map(minutes),
            [Some(1440), Some(120), Some(15), Some(7)]
        );
        for bad in ["", "10x", "d", "0h", "-1d", "99999999999999999999d", "+1h"] {
            assert_eq!(minutes(bad), None, "{bad:?}");
        }
        assert_eq!(Row::start("14:00"), Some(840));
        assert_eq!(Row::start("14:05:00"), Some(845));
        for bad in ["xx", "25:00", "14", "14:60", "14:00:01"] {
            assert_eq!(Row::start(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_is_due_at_multiples_after_its_start() {
        let row = |minutes, start| Row { minutes, start };
        let hour = 3600;
        assert_eq!(row(120, None).next_after(0), 2 * hour);
        assert_eq!(row(120, None).next_after(2 * hour), 4 * hour);
        assert_eq!(row(DAY, Some(14 * 60)).next_after(hour), 14 * hour);
        assert_eq!(row(DAY, Some(14 * 60)).next_after(14 * hour), 38 * hour);
    }

    #[test]
    fn the_nearest_level_counts() {
        let day = Row {
            minutes: DAY,
            start: None,
        };
        let hour = Row {
            minutes: 60,
            start: None,
        };
        let mut s = Schedules::default();
        s.levels.insert(Level::everywhere(), vec![day]);
        s.levels.insert(Level::of_pool(2), vec![hour]);
        let ns = Level::of_namespace;
        assert_eq!(s.next_after(&ns(2, "x"), 1), Some(3600));
        assert_eq!(s.next_after(&Level::of_pool(3), 1), Some(86_400));
        s.levels.insert(ns(2, "x"), vec![day]);
        assert_eq!(s.next_after(&ns(2, "x"), 1), Some(86_400));
        let image = Level {
            image: "10ab".into(),
            ..ns(2, "")
        };
        assert_eq!(s.next_after(&image, 1), Some(3600));
        s.levels.insert(image.clone(), vec![day]);
        s.names.insert(image.clone(), "i".into());
        assert_eq!(s.next_after(&image, 1), Some(86_400));
        let levels: Vec<String> = s.levels.keys().map(Level::to_string).collect();
        assert_eq!(levels, ["", "2", "2//10ab", "2/x"]);
        let stored = serde_json::from_slice::<Value>(&s.value()).unwrap();
        assert_eq!(
            stored["2//10ab"],
            json!({"name": "i", "schedule": [{"interval": "1d", "start_time": null}]})
        );
        assert_eq!(Schedules::parse(&s.value()), s);
        for level in s.levels.keys() {
            assert_eq!(Level::parse(&level.to_string()).as_ref(), Some(level));
        }
    }
}
