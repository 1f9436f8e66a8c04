//! `skep store dump`: what lies in the store of an OSD that does not run: pools, PGs, objects, data, attributes,
//! omap, logs. Nothing is changed.
//!
//! A damaged block costs that block and no more; the exit code tells. Lists are printed as they are read, so that
//! memory does not grow with the store.

use super::args::{Dump, Get, Ls, What, Which};
use super::export;
use super::outcome::{Fail, Outcome, Verdict};
use super::text::{self, bytes, count};
use crate::args::Format;
use ::store::{Error, Options, View};
use ::types::pool::{ceph_stable_mod, pg_mask, string_hash_rjenkins};
use ::types::{EVersion, HObject, NOSNAP, ObjectId, PgId, SPgId, Utime};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Seek, SeekFrom, Write};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Objects and omap entries asked for at once.
const PAGE: usize = 1000;
const OMAP_PAGE_BYTES: usize = 4 << 20;
/// Data read at once.
const CHUNK: u64 = 4 << 20;

pub fn run(args: &Dump) -> Outcome {
    let said = Arc::new(Mutex::new(String::new()));
    let hook = std::panic::take_hook();
    let to = said.clone();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(mut said) = to.lock() {
            *said = info.to_string();
        }
    }));
    // The index library may panic over an index that was damaged: here nothing can be lost by going on.
    let outcome = catch_unwind(AssertUnwindSafe(|| dump(args)));
    std::panic::set_hook(hook);
    outcome.unwrap_or_else(|_| {
        let why = said.lock().map(|s| s.replace('\n', " ")).unwrap_or_default();
        Err(Fail::Store(Error::Index {
            path: args.dir.display().to_string(),
            why,
        }))
    })
}

fn dump(args: &Dump) -> Outcome {
    let options = Options {
        osd_id: Options::ANY_OSD,
        keys: super::keys::of(args.keys.as_deref())?,
        ..Options::default()
    };
    let view = match args.without_log {
        true => View::open_without_log(&args.dir, &options)?,
        false => View::open(&args.dir, &options)?,
    };
    let out = &mut BufWriter::new(std::io::stdout().lock());
    let json = args.format == Format::Json;
    let verdict = match &args.what {
        None => summary(&view, out, json),
        Some(What::Ls(a)) => list(&view, a, out, json),
        Some(What::Get(a)) => get(&view, a, out),
        Some(What::Attrs(a)) => attrs(&view, a, out, json),
        Some(What::Omap(a)) => omap(&view, a, out, json),
        Some(What::Log { pg }) => log(&view, *pg, out, json),
        Some(What::Export(a)) => export::run(&view, a, out, json),
    }?;
    out.flush().map_err(Fail::output)?;
    Ok(verdict)
}

// --- finding objects ---

/// Before all objects of a pool; None: before all there are.
fn start(pool: Option<i64>) -> ObjectId {
    let object = HObject {
        pool: pool.unwrap_or(i64::MIN),
        ..HObject::min()
    };
    ObjectId {
        shard: i8::MIN,
        object,
    }
}

/// Every object, or every one of a pool, in order, until `f` gives false.
pub fn each(
    view: &View,
    pool: Option<i64>,
    mut f: impl FnMut(&ObjectId) -> Result<bool, Fail>,
) -> Result<(), Fail> {
    let mut from = start(pool);
    loop {
        let page = view.list(&from, PAGE + 1)?;
        for oid in page.iter().take(PAGE) {
            if pool.is_some_and(|p| oid.object.pool != p) || !f(oid)? {
                return Ok(());
            }
        }
        match page.into_iter().nth(PAGE) {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Each pool's pg_num, as far as its PGs know it.
fn pg_nums(view: &View) -> Result<BTreeMap<i64, u32>, Fail> {
    let mut out = BTreeMap::new();
    for c in view.collections() {
        if let Some(n) = pg::inspect::pg_num(&view.meta(&c)?) {
            let known = out.entry(c.pg.pool).or_insert(n);
            *known = n.max(*known);
        }
    }
    Ok(out)
}

fn pg_of(o: &ObjectId, pg_nums: &BTreeMap<i64, u32>) -> Option<SPgId> {
    let n = *pg_nums.get(&o.object.pool)?;
    let seed = ceph_stable_mod(o.object.hash, n, pg_mask(n));
    Some(SPgId {
        pg: PgId::new(o.object.pool, seed),
        shard: o.shard,
    })
}

/// The one object that is meant.
fn find(view: &View, w: &Which) -> Result<ObjectId, Fail> {
    let raw = |s: &OsStr| Bytes::copy_from_slice(s.as_encoded_bytes());
    let (name, nspace) = (raw(&w.object), raw(&w.namespace));
    let snap = w.snap.unwrap_or(NOSNAP);
    let pools = match w.pool {
        Some(p) => vec![p],
        None => view.usage().into_keys().collect(),
    };
    let mut placed = name.to_vec();
    if !nspace.is_empty() {
        placed = [&nspace[..], b"\x1f", &name].concat();
    }
    let hash = string_hash_rjenkins(&placed);
    let mut found = Vec::new();
    for pool in &pools {
        let object = HObject::new(*pool, hash, nspace.clone(), Bytes::new(), name.clone(), snap);
        let oid = ObjectId::replicated(object);
        if view.exists(&oid)? {
            found.push(oid);
        }
    }
    // One with a locator key lies elsewhere; it is looked for by its name.
    if found.is_empty() {
        for pool in &pools {
            each(view, Some(*pool), |o| {
                let h = &o.object;
                if h.oid == name && h.nspace == nspace && h.snap == snap {
                    found.push(o.clone());
                }
                Ok(found.len() < 2)
            })?;
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Fail::Usage(format!(
            "there is no object {}{} in {}",
            name.escape_ascii(),
            w.snap.map_or(String::new(), |s| format!(" of snapshot {s}")),
            match w.pool {
                Some(p) => format!("pool {p}"),
                None => "any pool".into(),
            }
        ))),
        [a, b, ..] => Err(Fail::Usage(format!(
            "several objects have this name, e.g. {} and {}: say which by --pool",
            a.object, b.object
        ))),
    }
}

/// `namespace/name@snap` without what is not set.
pub fn name(o: &HObject) -> String {
    let mut out = String::new();
    if !o.nspace.is_empty() {
        out += &format!("{}/", o.nspace.escape_ascii());
    }
    out += &o.oid.escape_ascii().to_string();
    if !o.key.is_empty() {
        out += &format!("(key {})", o.key.escape_ascii());
    }
    if !o.is_head() {
        out += &format!("@{}", o.snap);
    }
    out
}

pub fn put_name(map: &mut Map<String, Value>, o: &ObjectId) {
    let h = &o.object;
    map.insert("pool".into(), h.pool.into());
    text::put(map, "namespace", &h.nspace);
    text::put(map, "name", &h.oid);
    if !h.key.is_empty() {
        text::put(map, "key", &h.key);
    }
    if o.shard >= 0 {
        map.insert("shard".into(), o.shard.into());
    }
    let snap = if h.is_head() { Value::Null } else { h.snap.into() };
    map.insert("snap".into(), snap);
}

/// A list, written as it comes: lines for people, or one JSON array.
pub struct Rows<'a, W: Write> {
    out: &'a mut W,
    json: bool,
    first: bool,
}

impl<'a, W: Write> Rows<'a, W> {
    pub fn begin(out: &'a mut W, json: bool) -> Result<Self, Fail> {
        if json {
            write!(out, "[").map_err(Fail::output)?;
        }
        Ok(Self {
            out,
            json,
            first: true,
        })
    }

    /// One of the two is made.
    pub fn put(
        &mut self,
        line: impl FnOnce() -> String,
        fields: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<(), Fail> {
        if !self.json {
            return writeln!(self.out, "{}", line()).map_err(Fail::output);
        }
        let mut map = Map::new();
        fields(&mut map);
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.out, "{comma}\n{}", Value::Object(map)).map_err(Fail::output)
    }

    pub fn end(self) -> Result<(), Fail> {
        match self.json {
            true => writeln!(self.out, "\n]").map_err(Fail::output),
            false => Ok(()),
        }
    }
}

// --- the commands ---

#[derive(Default)]
struct Tally {
    objects: u64,
    heads: u64,
}

fn summary(view: &View, out: &mut impl Write, json: bool) -> Outcome {
    let pg_nums = pg_nums(view)?;
    let mut pools: BTreeMap<i64, Tally> = BTreeMap::new();
    let mut pgs: BTreeMap<SPgId, u64> = BTreeMap::new();
    each(view, None, |o| {
        let t = pools.entry(o.object.pool).or_default();
        t.objects += 1;
        t.heads += u64::from(o.object.is_head());
        if let Some(pg) = pg_of(o, &pg_nums) {
            *pgs.entry(pg).or_default() += 1;
        }
        Ok(true)
    })?;
    let id = view.identity();
    let mut usage = view.usage();
    for c in view.collections() {
        usage.entry(c.pg.pool).or_default();
    }
    let mut pool_rows = Vec::new();
    for (pool, u) in &usage {
        let t = pools.remove(pool).unwrap_or_default();
        pool_rows.push((*pool, t, *u));
    }
    let mut pg_rows = Vec::new();
    for c in view.collections() {
        let objects = pg_nums
            .get(&c.pg.pool)
            .map(|_| pgs.get(&c).copied().unwrap_or_default());
        let entries = view.log_entries(&c)?;
        let first = entries.first().map(|e| e.0);
        pg_rows.push((c, objects, entries.len() as u64, first, view.log_bounds(&c)?.head));
    }
    if json {
        let pools = pool_rows.iter().map(|(pool, t, u)| {
            json!({"pool": pool, "pg_num": pg_nums.get(pool), "objects": t.objects, "heads": t.heads,
                "snapshots": t.objects - t.heads, "stored": u.stored, "allocated": u.allocated,
                "omap_keys": u.omap_keys, "omap_bytes": u.omap_bytes})
        });
        let pgs = pg_rows.iter().map(|(c, objects, entries, first, head)| {
            json!({"pg": c.to_string(), "objects": objects, "log_entries": entries,
                "log_first": first.map(|v| v.to_string()), "log_last": head.to_string()})
        });
        let all = json!({"osd": id.osd_id, "fsid": id.fsid.to_string(), "osd_uuid": id.osd_uuid.to_string(),
            "format": id.format, "replayed": view.replayed(), "pools": pools.collect::<Vec<_>>(),
            "pgs": pgs.collect::<Vec<_>>()});
        writeln!(out, "{all:#}").map_err(Fail::output)?;
        return Ok(Verdict::Good);
    }
    let replayed = count(view.replayed(), "transaction");
    let head = format!(
        "osd.{} of cluster {}, format {}, {replayed} from the log",
        id.osd_id, id.fsid, id.format
    );
    let cells = |names: &[&str]| names.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let mut pool_table = vec![cells(&[
        "pool",
        "objects",
        "heads",
        "snapshots",
        "data",
        "on disk",
        "omap keys",
    ])];
    pool_table.extend(pool_rows.iter().map(|(pool, t, u)| {
        vec![
            pool.to_string(),
            t.objects.to_string(),
            t.heads.to_string(),
            (t.objects - t.heads).to_string(),
            bytes(u.stored),
            bytes(u.allocated),
            u.omap_keys.to_string(),
        ]
    }));
    let version = |v: &EVersion| match v.version {
        0 => "-".to_owned(),
        _ => v.to_string(),
    };
    let mut pg_table = vec![cells(&["pg", "objects", "log entries", "first", "last"])];
    pg_table.extend(pg_rows.iter().map(|(c, objects, entries, first, head)| {
        vec![
            c.to_string(),
            objects.map_or("?".into(), |n| n.to_string()),
            entries.to_string(),
            first.as_ref().map_or("-".into(), version),
            version(head),
        ]
    }));
    let mut write = || -> std::io::Result<()> {
        writeln!(out, "{head}\n")?;
        text::table(out, &[], &pool_table)?;
        writeln!(out)?;
        text::table(out, &[0], &pg_table)
    };
    write().map_err(Fail::output)?;
    Ok(Verdict::Good)
}

fn list(view: &View, args: &Ls, out: &mut impl Write, json: bool) -> Outcome {
    let pg_nums = pg_nums(view)?;
    if let Some(pg) = args.pg
        && !pg_nums.contains_key(&pg.pool)
    {
        return Err(Fail::Usage(format!(
            "no PG here says how many of them pool {} has: list by --pool",
            pg.pool
        )));
    }
    let pool = args.pg.map(|pg| pg.pool).or(args.pool);
    if args.pool.is_some_and(|p| pool != Some(p)) {
        return Err(Fail::Usage("the PG is of another pool".into()));
    }
    if !json {
        writeln!(out, "{:>6}  {:>14}  object", "pool", "bytes").map_err(Fail::output)?;
    }
    let mut rows = Rows::begin(out, json)?;
    each(view, pool, |o| {
        if args.pg.is_some() && pg_of(o, &pg_nums).map(|p| p.pg) != args.pg {
            return Ok(true);
        }
        let stat = view.stat(o)?;
        rows.put(
            || format!("{:>6}  {:>14}  {}", o.object.pool, stat.size, name(&o.object)),
            |map| {
                put_name(map, o);
                map.insert("size".into(), stat.size.into());
                map.insert("allocated".into(), stat.allocated.into());
                map.insert("omap_keys".into(), stat.omap_keys.into());
            },
        )?;
        Ok(true)
    })?;
    rows.end()?;
    Ok(Verdict::Good)
}

fn attrs(view: &View, which: &Which, out: &mut impl Write, json: bool) -> Outcome {
    let oid = find(view, which)?;
    let mut rows = Rows::begin(out, json)?;
    for (raw, value) in view.attrs(&oid)? {
        let user = pg::inspect::user_attr(&raw);
        let name = user.as_ref().unwrap_or(&raw);
        let kind = if user.is_some() { "user" } else { "system" };
        rows.put(
            || format!("{kind:6}  {}  {}", text::value(name), text::value(&value)),
            |map| {
                map.insert("kind".into(), kind.into());
                text::put(map, "name", name);
                text::put(map, "value", &value);
            },
        )?;
    }
    rows.end()?;
    Ok(Verdict::Good)
}

fn omap(view: &View, which: &Which, out: &mut impl Write, json: bool) -> Outcome {
    let oid = find(view, which)?;
    let header = view.omap_header(&oid)?;
    let mut rows = Rows::begin(out, json)?;
    if !header.is_empty() {
        rows.put(
            || format!("header: {}", text::value(&header)),
            |map| text::put(map, "header", &header),
        )?;
    }
    let mut from: Bound<Bytes> = Bound::Unbounded;
    loop {
        let at = from.as_ref().map(|k| k.as_ref());
        let page = view.omap_range(&oid, at, PAGE, OMAP_PAGE_BYTES)?;
        for (k, v) in &page.entries {
            rows.put(
                || format!("{}  {}", text::value(k), text::value(v)),
                |map| {
                    text::put(map, "key", k);
                    text::put(map, "value", v);
                },
            )?;
        }
        match page.entries.last() {
            Some((k, _)) if page.more => from = Bound::Excluded(k.clone()),
            _ => break,
        }
    }
    rows.end()?;
    Ok(Verdict::Good)
}

fn log(view: &View, pg: PgId, out: &mut impl Write, json: bool) -> Outcome {
    let mut shards = view.collections();
    shards.retain(|c| c.pg == pg);
    if shards.is_empty() {
        return Err(Fail::Usage(format!("PG {pg} is not in this store")));
    }
    let mut verdict = Verdict::Good;
    let mut rows = Rows::begin(out, json)?;
    for shard in shards {
        for (version, raw) in view.log_entries(&shard)? {
            let Ok(e) = pg::inspect::log_entry(&raw) else {
                verdict = Verdict::Damage;
                eprintln!("skep: log entry {version} of PG {shard} cannot be decoded");
                continue;
            };
            let v = version.to_string();
            rows.put(
                || {
                    let (at, who, what) = (time(e.mtime), e.reqid, name(&e.object));
                    format!("{v:>12}  {:8}  {at}  {who}  result {}  {what}", e.kind, e.result)
                },
                |map| {
                    map.insert("version".into(), v.clone().into());
                    map.insert("prior_version".into(), e.prior_version.to_string().into());
                    map.insert("user_version".into(), e.user_version.into());
                    map.insert("kind".into(), e.kind.into());
                    let object = ObjectId {
                        shard: shard.shard,
                        object: e.object.clone(),
                    };
                    put_name(map, &object);
                    map.insert("reqid".into(), e.reqid.to_string().into());
                    map.insert("mtime".into(), time(e.mtime).into());
                    map.insert("result".into(), e.result.into());
                },
            )?;
        }
    }
    rows.end()?;
    Ok(verdict)
}

fn time(t: Utime) -> String {
    let (y, mo, d, h, mi, s) = t.civil();
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
}

fn get(view: &View, args: &Get, out: &mut impl Write) -> Outcome {
    let oid = find(view, &args.which)?;
    let file = Some(&args.output).filter(|f| f.as_os_str() != "-");
    let given = match file {
        Some(file) => to_file(view, &oid, file, args.skip_damaged),
        None => to_stdout(view, &oid, out, args.skip_damaged),
    };
    if let Err(Fail::Store(Error::Corrupt { .. } | Error::Io { .. })) = given {
        if let Some(file) = file {
            let _ = std::fs::remove_file(file);
        }
        eprintln!("skep: --skip-damaged gives the rest, with zeros in place of what is damaged");
    }
    given
}

fn to_stdout(view: &View, oid: &ObjectId, out: &mut impl Write, skip_damaged: bool) -> Outcome {
    if std::io::stdout().is_terminal() {
        let text = "data does not go to a terminal: name a file with -o";
        return Err(Fail::Usage(text.into()));
    }
    let size = view.stat(oid)?.size;
    let mut at = 0;
    let mut verdict = Verdict::Good;
    while at < size {
        let (data, damage) = piece(view, oid, at, skip_damaged)?;
        out.write_all(&data).map_err(Fail::output)?;
        verdict = verdict.and(damage);
        at += CHUNK;
    }
    Ok(verdict)
}

/// A chunk of data; zeros for bad blocks where that is wanted, each of them named on standard error.
fn piece(view: &View, oid: &ObjectId, at: u64, skip_damaged: bool) -> Result<(Bytes, Verdict), Fail> {
    if !skip_damaged {
        return Ok((view.read(oid, at, CHUNK)?, Verdict::Good));
    }
    let found = view.salvage(oid, at, CHUNK)?;
    for (offset, e) in &found.bad {
        eprintln!("skep: {}: zeros at byte {offset}: {e}", name(&oid.object));
    }
    let verdict = match found.bad.is_empty() {
        true => Verdict::Good,
        false => Verdict::Damage,
    };
    Ok((found.data, verdict))
}

/// Writes the object's data to a new file; what is a hole stays one.
pub fn to_file(view: &View, oid: &ObjectId, path: &Path, skip_damaged: bool) -> Outcome {
    let failed = |e| Fail::path("write", path, e);
    let mut file = File::create(path).map_err(failed)?;
    let size = view.stat(oid)?.size;
    let mut verdict = Verdict::Good;
    let mut at = 0;
    while at < size {
        if !view.allocated(oid, at, CHUNK)?.is_empty() {
            let (data, damage) = piece(view, oid, at, skip_damaged)?;
            verdict = verdict.and(damage);
            file.seek(SeekFrom::Start(at)).map_err(failed)?;
            file.write_all(&data).map_err(failed)?;
        }
        at += CHUNK;
    }
    file.set_len(size).map_err(failed)?;
    Ok(verdict)
}
