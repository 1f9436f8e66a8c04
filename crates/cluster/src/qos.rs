//! Limits of what clients may do per second, and reservations of what goes ahead of others: to an image, in a namespace, in a pool,
//! and of one cephx user.
//!
//! Kept as configuration keys, one for each subject that has any, as the manager's modules keep theirs: an older server passes
//! them over. Amounts and bursts are those of `rbd config` (`rbd_qos_*`), without the prefix: `iops_limit`, `iops_burst`,
//! `iops_burst_seconds`, and the same with `bps`, `read_iops`, `write_iops`, `read_bps`, `write_bps`. Reservations are `iops_reserve`
//! and `bps_reserve`, under keys of their own: a server that does not know them would not read a row that has them, and its
//! limits with it.
//!
//! Not here: who enforces them (`osd::qos`), who may set them (`mon`). Bound: [`SUBJECTS_MAX`].

use crate::changes::Change;
use crate::images::ImageKey;
use crate::state::ClusterState;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::PoolId;

/// `skep/qos/pool/<pool>`, `skep/qos/namespace/<pool>/<namespace>`, `skep/qos/image/<pool>/<namespace>/<id>`,
/// `skep/qos/user/<entity>` -> JSON.
pub const KEY: &str = "skep/qos/";
/// The same of reservations.
pub const RESERVES: &str = "skep/reserve/";
/// Subjects that have limits, in a cluster: each OSD goes by all of them.
pub const SUBJECTS_MAX: usize = 10_000;
/// A limit is no larger: sums of a few of them stay exact.
pub const RATE_MAX: u64 = 1 << 50;
pub const BURST_SECONDS_MAX: u64 = 3600;

/// Whose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// All objects of the pool.
    Pool(PoolId),
    Namespace(PoolId, String),
    /// By its id; the pool is that of its header.
    Image(ImageKey),
    /// `client.name`.
    User(String),
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Iops,
    Bps,
    ReadIops,
    WriteIops,
    ReadBps,
    WriteBps,
}

impl Kind {
    pub const ALL: [(Kind, &'static str); 6] = [
        (Self::Iops, "iops"),
        (Self::Bps, "bps"),
        (Self::ReadIops, "read_iops"),
        (Self::WriteIops, "write_iops"),
        (Self::ReadBps, "read_bps"),
        (Self::WriteBps, "write_bps"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What can be reserved.
const RESERVED: [Kind; 2] = [Kind::Iops, Kind::Bps];

/// So much per second; after a rest `burst` per second, for `burst_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    /// 0: no limit.
    pub limit: u64,
    /// 0: no bursts.
    pub burst: u64,
    pub burst_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    rates: [Rate; 6],
    /// Of each of [`RESERVED`]; 0: nothing.
    reserves: [u64; 2],
    /// Of an image: where its data objects are.
    pub data_pool: Option<PoolId>,
    /// Of an image: its name when the limit was set, for people.
    pub name: String,
}

impl Limits {
    pub fn rate(&self, kind: Kind) -> Rate {
        self.rates[kind as usize]
    }

    /// Those that are limited.
    pub fn rates(&self) -> impl Iterator<Item = (Kind, Rate)> + '_ {
        let all = Kind::ALL.iter().map(|(kind, _)| (*kind, self.rate(*kind)));
        all.filter(|(_, rate)| rate.limit > 0)
    }

    /// So much per second goes ahead of others.
    pub fn reserves(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        let all = RESERVED.into_iter().zip(self.reserves);
        all.filter(|(_, amount)| *amount > 0)
    }

    pub fn is_empty(&self) -> bool {
        self.rates().next().is_none() && self.reserves().next().is_none()
    }

    fn field(&mut self, name: &str) -> Option<(&mut u64, u64)> {
        if let Some(stem) = name.strip_suffix("_reserve") {
            let at = RESERVED.iter().position(|kind| kind.name() == stem)?;
            return Some((&mut self.reserves[at], RATE_MAX));
        }
        let (kind, what) = ["_limit", "_burst", "_burst_seconds"].iter().find_map(|what| {
            let stem = name.strip_suffix(what)?;
            let (kind, _) = Kind::ALL.iter().find(|(_, n)| *n == stem)?;
            Some((*kind, *what))
        })?;
        let rate = &mut self.rates[kind as usize];
        Some(match what {
            "_limit" => (&mut rate.limit, RATE_MAX),
            "_burst" => (&mut rate.burst, RATE_MAX),
            _ => (&mut rate.burst_seconds, BURST_SECONDS_MAX),
        })
    }

    /// Sets one amount by its name. 0 takes it away.
    pub fn set(&mut self, name: &str, amount: u64) -> Result<(), String> {
        let Some((field, most)) = self.field(name) else {
            return Err(format!("there is no limit {name}"));
        };
        if amount > most {
            return Err(format!("{name} is at most {most}"));
        }
        *field = amount;
        Ok(())
    }

    /// Takes all limits of one kind away, or one reservation.
    pub fn unset(&mut self, kind: &str) -> Result<(), String> {
        if kind.ends_with("_reserve") {
            return self.set(kind, 0);
        }
        match Kind::ALL.iter().find(|(_, n)| *n == kind) {
            Some((kind, _)) => {
                self.rates[*kind as usize] = Rate::default();
                Ok(())
            }
            None => Err(format!("there is no limit {kind}")),
        }
    }

    /// Why this cannot be meant, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        for (kind, name) in Kind::ALL {
            let rate = self.rate(kind);
            if rate.burst > 0 && rate.burst <= rate.limit {
                return Err(format!("{name}_burst is not above {name}_limit"));
            }
            if rate.limit == 0 && (rate.burst > 0 || rate.burst_seconds > 0) {
                return Err(format!("{name}_burst needs a {name}_limit"));
            }
        }
        for (kind, amount) in self.reserves() {
            let (limit, name) = (self.rate(kind).limit, kind.name());
            if limit > 0 && amount > limit {
                return Err(format!("{name}_reserve is above {name}_limit"));
            }
        }
        Ok(())
    }

    /// What is set, by name.
    pub fn amounts(&self) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        for (kind, rate) in self.rates() {
            let name = kind.name();
            out.push((format!("{name}_limit"), rate.limit));
            if rate.burst > 0 {
                out.push((format!("{name}_burst"), rate.burst));
                out.push((format!("{name}_burst_seconds"), rate.burst_seconds.max(1)));
            }
        }
        let reserves = self.reserves();
        out.extend(reserves.map(|(kind, amount)| (format!("{}_reserve", kind.name()), amount)));
        out
    }

    pub fn json(&self) -> Map<String, Value> {
        let mut all: Map<String, Value> = self.amounts().into_iter().map(|(k, v)| (k, v.into())).collect();
        if let Some(pool) = self.data_pool {
            all.insert("data_pool".into(), json!(pool));
        }
        if !self.name.is_empty() {
            all.insert("name".into(), json!(self.name));
        }
        all
    }

    /// What does not read limits nothing: people can set keys, too.
    fn parse(raw: &[u8]) -> Option<Self> {
        let all: Map<String, Value> = serde_json::from_slice(raw).ok()?;
        let mut limits = Self::default();
        for (name, value) in &all {
            match name.as_str() {
                "data_pool" => limits.data_pool = Some(value.as_i64()?),
                "name" => limits.name = value.as_str()?.to_string(),
                name => limits.set(name, value.as_u64()?).ok()?,
            }
        }
        limits.check().ok()?;
        (!limits.is_empty()).then_some(limits)
    }

    /// What its two rows say.
    fn merged(limits: Option<Self>, reserved: Option<Self>) -> Self {
        match (limits, reserved) {
            (Some(limits), Some(reserved)) => Self {
                reserves: reserved.reserves,
                ..limits
            },
            (limits, reserved) => limits.or(reserved).unwrap_or_default(),
        }
    }
}

impl Subject {
    /// Below [`KEY`] or [`RESERVES`].
    fn key(&self, below: &str) -> String {
        match self {
            Self::Pool(pool) => format!("{below}pool/{pool}"),
            Self::Namespace(pool, ns) => format!("{below}namespace/{pool}/{ns}"),
            Self::Image(i) => format!("{below}image/{}/{}/{}", i.pool, i.namespace, i.id),
            Self::User(name) => format!("{below}user/{name}"),
        }
    }

    fn parse(below: &str, key: &str) -> Option<Self> {
        let (what, rest) = key.strip_prefix(below)?.split_once('/')?;
        let subject = match what {
            "pool" => Self::Pool(rest.parse().ok()?),
            "namespace" => {
                let (pool, ns) = rest.split_once('/')?;
                Self::Namespace(pool.parse().ok()?, ns.to_string())
            }
            "image" => {
                let mut parts = rest.splitn(3, '/');
                Self::Image(ImageKey {
                    pool: parts.next()?.parse().ok()?,
                    namespace: parts.next()?.to_string(),
                    id: parts.next()?.to_string(),
                })
            }
            "user" => Self::User(rest.to_string()),
            _ => return None,
        };
        // One that is written otherwise could not be taken back by its name.
        (subject.key(below) == key).then_some(subject)
    }

    /// `pool`, `namespace`, `image` or `user`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pool(_) => "pool",
            Self::Namespace(..) => "namespace",
            Self::Image(_) => "image",
            Self::User(_) => "user",
        }
    }

    /// The pool whose end is its end, too.
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            Self::Pool(pool) | Self::Namespace(pool, _) => Some(*pool),
            Self::Image(image) => Some(image.pool),
            Self::User(_) => None,
        }
    }

    /// Puts these in place of what it has.
    pub fn changes(&self, limits: &Limits) -> [Change; 2] {
        let limited = Limits {
            reserves: [0; 2],
            ..limits.clone()
        };
        let reserved = Limits {
            rates: Default::default(),
            ..limits.clone()
        };
        [(KEY, limited), (RESERVES, reserved)].map(|(below, row)| {
            let key = self.key(below);
            match row.is_empty() {
                true => Change::ConfigKeyRm { key },
                false => Change::ConfigKeySet {
                    key,
                    value: Bytes::from(Value::Object(row.json()).to_string()),
                },
            }
        })
    }
}

impl ClusterState {
    pub fn qos(&self) -> BTreeMap<Subject, Limits> {
        rows(&self.config_keys)
    }

    pub fn qos_of(&self, subject: &Subject) -> Limits {
        let row = |below: &str| {
            let raw = self.config_keys.get(&subject.key(below));
            raw.and_then(|raw| Limits::parse(raw))
        };
        Limits::merged(row(KEY), row(RESERVES))
    }
}

/// What the store of keys and values says.
pub fn rows(keys: &BTreeMap<String, Bytes>) -> BTreeMap<Subject, Limits> {
    let mut all: BTreeMap<Subject, Limits> = below(keys, KEY).collect();
    for (subject, reserved) in below(keys, RESERVES) {
        let limits = all.remove(&subject);
        if limits.is_some() || all.len() < SUBJECTS_MAX {
            all.insert(subject, Limits::merged(limits, Some(reserved)));
        }
    }
    all
}

fn below<'a>(
    keys: &'a BTreeMap<String, Bytes>,
    prefix: &'static str,
) -> impl Iterator<Item = (Subject, Limits)> + 'a {
    let rows = keys
        .range(prefix.to_string()..)
        .take_while(move |(k, _)| k.starts_with(prefix));
    let rows = rows.filter_map(move |(k, v)| Some((Subject::parse(prefix, k)?, Limits::parse(v)?)));
    rows.take(SUBJECTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(namespace: &str) -> Subject {
        Subject::Image(ImageKey {
            pool: 3,
            namespace: namespace.into(),
            id: "10ab".into(),
        })
    }

    #[test]
    fn what_is_kept_reads_back_and_junk_limits_nothing() {
        let mut limits = Limits::default();
        limits.set("iops_limit", 100).unwrap();
        limits.set("iops_burst", 300).unwrap();
        limits.set("write_bps_limit", 1 << 20).unwrap();
        limits.set("iops_reserve", 50).unwrap();
        limits.data_pool = Some(7);
        limits.name = "vm1".into();
        let subjects = [
            Subject::Pool(3),
            Subject::Namespace(3, "a b".into()),
            image(""),
            image("ns"),
            Subject::User("client.a/b".into()),
        ];
        let mut keys = BTreeMap::new();
        for subject in &subjects {
            for change in subject.changes(&limits) {
                let Change::ConfigKeySet { key, value } = change else {
                    panic!("kept");
                };
                keys.insert(key, value);
            }
        }
        for (key, junk) in [
            ("skep/qos/pool/03", r#"{"iops_limit":1}"#),
            ("skep/qos/pool/x", r#"{"iops_limit":1}"#),
            ("skep/qos/pool/4", "7"),
            ("skep/qos/pool/5", r#"{"iops_limit":-1}"#),
            ("skep/qos/pool/6", r#"{"iops_limit":0}"#),
            ("skep/qos/pool/8", r#"{"iops_limit":5,"iops_burst":5}"#),
            ("skep/qos/pool/9", r#"{"iops":5}"#),
            ("skep/qos/image/3/10ab", r#"{"iops_limit":1}"#),
            ("skep/qot", r#"{"iops_limit":1}"#),
            ("skep/reserve/pool/4", r#"{"read_iops_reserve":1}"#),
            ("skep/reserve/pool/04", r#"{"iops_reserve":1}"#),
        ] {
            keys.insert(key.into(), Bytes::from(junk));
        }
        let read = rows(&keys);
        assert_eq!(read.len(), subjects.len());
        for subject in &subjects {
            let mut want = limits.clone();
            want.set("iops_burst_seconds", 1).unwrap();
            assert_eq!(read[subject], want, "{subject:?}");
        }
        let none = Limits::default();
        let [limited, reserved] = Subject::Pool(3).changes(&none);
        assert!(matches!(limited, Change::ConfigKeyRm { key } if key == "skep/qos/pool/3"));
        assert!(matches!(reserved, Change::ConfigKeyRm { key } if key == "skep/reserve/pool/3"));
    }

    /// What an older server reads of a subject with a reservation are its limits.
    #[test]
    fn a_reservation_is_a_row_of_its_own() {
        let mut limits = Limits::default();
        limits.set("bps_reserve", 7).unwrap();
        let [none, reserved] = Subject::Pool(3).changes(&limits);
        assert!(matches!(none, Change::ConfigKeyRm { .. }));
        let Change::ConfigKeySet { key, value } = reserved else {
            panic!("kept");
        };
        assert_eq!(value, r#"{"bps_reserve":7}"#);
        let keys = BTreeMap::from([(key, value)]);
        assert_eq!(rows(&keys)[&Subject::Pool(3)], limits);
        limits.set("iops_limit", 9).unwrap();
        let [limited, _] = Subject::Pool(3).changes(&limits);
        assert!(matches!(limited, Change::ConfigKeySet { value, .. } if value == r#"{"iops_limit":9}"#));
        limits.unset("bps_reserve").unwrap();
        limits.unset("iops").unwrap();
        assert!(limits.is_empty() && limits.unset("write_bps_reserve").is_err());
    }

    #[test]
    fn amounts_that_cannot_be_meant_are_refused() {
        let of = |words: &[(&str, u64)]| {
            let mut limits = Limits::default();
            for (name, amount) in words {
                limits.set(name, *amount)?;
            }
            limits.check()
        };
        assert!(of(&[("read_iops_limit", 5)]).is_ok());
        assert!(of(&[("read_iops_limit", 5), ("read_iops_burst", 6)]).is_ok());
        assert!(of(&[("read_iops_limit", 5), ("read_iops_burst", 5)]).is_err());
        assert!(of(&[("bps_burst", 5)]).is_err());
        assert!(of(&[("bps_burst_seconds", 5)]).is_err());
        assert!(of(&[("bps", 5)]).is_err());
        assert!(of(&[("iops_limit", 5), ("iops_reserve", 5)]).is_ok());
        assert!(of(&[("iops_limit", 5), ("iops_reserve", 6)]).is_err());
        assert!(of(&[("read_iops_reserve", 5)]).is_err());
        assert!(of(&[("bps_limit", RATE_MAX + 1)]).is_err());
        assert!(of(&[("bps_limit", 5), ("bps_burst", 9), ("bps_burst_seconds", 3601)]).is_err());
    }
}
