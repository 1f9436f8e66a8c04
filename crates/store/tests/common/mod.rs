//! What the store's tests share: a reference model in memory, a generator of transactions, and the
//! comparison of both.
#![allow(dead_code, clippy::unwrap_used)]

use bytes::Bytes;
use io::disk::sim::{Dice, SimDisk};
use io::key_file::KeyFile;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use store::{Algorithm, Compression, Options, Store};
use types::{EVersion, HObject, NOSNAP, ObjectId, Op, PgId, SPgId, Transaction, Uuid};

pub fn options() -> Options {
    Options {
        osd_id: 3,
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 256 << 10,
        max_bytes: Some(4 << 20),
        host_reserve_bytes: 0,
        grow_bytes: 512 << 10,
        overlay_bytes: 96 << 10,
        index_cache_bytes: 256 << 10,
        record_cache_bytes: 64 << 10,
        block_cache_bytes: 64 << 10,
        direct_bytes: 8 << 10,
        object_bytes_max: 1 << 30,
        threads: false,
        own_log: true,
        ..Options::default()
    }
}

/// For stores of which some are encrypted.
pub fn with_keys() -> Options {
    Options {
        keys: Some(keys()),
        ..options()
    }
}

pub fn keys() -> KeyFile {
    KeyFile::parse("test MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap()
}

/// Every other run, by its number, compresses what it writes; by turns with each algorithm, and in blobs of few blocks so that
/// they are written over in part.
pub fn compression(number: u64) -> Option<Compression> {
    let dice = &mut Dice::new(number ^ 0xc0);
    let on = dice.below(2) == 1;
    on.then(|| Compression {
        algorithm: Algorithm::ALL[dice.below(4) as usize],
        min_blob: 8 << 10,
        max_blob: (2 + dice.below(4)) * 4096,
        required_ratio: 0.875,
    })
}

pub fn nobody() -> store::Waker {
    Arc::new(|| {})
}

/// A simulated disk with a fresh store on it; made once, copied often.
pub fn fresh() -> SimDisk {
    static TEMPLATE: std::sync::OnceLock<SimDisk> = std::sync::OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let disk = SimDisk::new();
        Store::mkfs_on(Arc::new(disk.clone()), &options()).unwrap();
        disk
    });
    template.copy()
}

/// The same, encrypted.
pub fn fresh_sealed() -> SimDisk {
    static TEMPLATE: std::sync::OnceLock<SimDisk> = std::sync::OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let disk = SimDisk::new();
        Store::mkfs_on(Arc::new(disk.clone()), &with_keys()).unwrap();
        disk
    });
    template.copy()
}

/// Of every four one is encrypted, by its number; of every two one has a queue for durable writes.
pub fn fresh_of(number: u64) -> SimDisk {
    let disk = match number % 4 {
        3 => fresh_sealed(),
        _ => fresh(),
    };
    with_queues(disk, number)
}

/// Every other one, by its number, has a queue for durable writes.
pub fn with_queues(disk: SimDisk, number: u64) -> SimDisk {
    if Dice::new(number ^ 0x71).below(2) == 1 {
        disk.offer_queues();
    }
    disk
}

pub fn open(disk: &SimDisk) -> Store {
    Store::open_on(Arc::new(disk.clone()), &with_keys(), nobody()).unwrap()
}

pub fn coll(seed: u32) -> SPgId {
    SPgId::replicated(PgId::new(1, seed))
}

pub fn oid(n: u64) -> ObjectId {
    let pool = if n == 5 { 2 } else { 1 };
    let snap = if n.is_multiple_of(2) { NOSNAP } else { 4 };
    let name = Bytes::from(format!("object{}", n / 2));
    let hash = (n as u32 / 2).wrapping_mul(0x9e37_79b9);
    ObjectId::replicated(HObject::new(pool, hash, Bytes::new(), Bytes::new(), name, snap))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collection {
    pub meta: Bytes,
    pub head: EVersion,
    pub log: BTreeMap<EVersion, Bytes>,
}

/// What the store should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
    pub collections: BTreeMap<SPgId, Collection>,
}

impl Model {
    /// The model behind the transaction, or None where it must be refused.
    pub fn after(&self, t: &Transaction) -> Option<Self> {
        let mut m = self.clone();
        t.ops.iter().try_for_each(|op| m.op(&t.collection, op))?;
        Some(m)
    }

    fn edit(&mut self, oid: &ObjectId) -> Option<&mut Object> {
        self.objects.get_mut(oid).map(Arc::make_mut)
    }

    fn create(&mut self, oid: &ObjectId) -> &mut Object {
        Arc::make_mut(self.objects.entry(oid.clone()).or_default())
    }

    fn op(&mut self, c: &SPgId, op: &Op) -> Option<()> {
        if !matches!(op, Op::CreateCollection) && !self.collections.contains_key(c) {
            return None;
        }
        match op {
            Op::Touch { oid } => drop(self.create(oid)),
            Op::Write { oid, offset, data } => put(&mut self.create(oid).data, *offset, data),
            Op::Zero { oid, offset, len } => {
                let zeros = vec![0; *len as usize];
                put(&mut self.edit(oid)?.data, *offset, &zeros);
            }
            Op::Truncate { oid, size } => self.edit(oid)?.data.resize(*size as usize, 0),
            Op::Remove { oid } => drop(self.objects.remove(oid)?),
            Op::SetAttrs { oid, attrs } => self.edit(oid)?.attrs.extend(attrs.iter().cloned()),
            Op::RemoveAttr { oid, name } => drop(self.edit(oid)?.attrs.remove(name)),
            Op::RemoveAttrs { oid } => self.edit(oid)?.attrs.clear(),
            Op::OmapSet { oid, entries } => self.edit(oid)?.omap.extend(entries.iter().cloned()),
            Op::OmapRemove { oid, keys } => {
                let o = self.edit(oid)?;
                keys.iter().for_each(|k| drop(o.omap.remove(k)));
            }
            Op::OmapRemoveRange { oid, first, last } => {
                self.edit(oid)?.omap.retain(|k, _| k < first || k >= last);
            }
            Op::OmapClear { oid } => {
                let o = self.edit(oid)?;
                o.omap.clear();
                o.header = Bytes::new();
            }
            Op::OmapSetHeader { oid, header } => self.edit(oid)?.header = header.clone(),
            Op::Clone { src, dst } => {
                let o = self.objects.get(src)?.clone();
                self.objects.insert(dst.clone(), o);
            }
            Op::CloneRange {
                src,
                dst,
                src_offset,
                len,
                dst_offset,
            } => {
                let s = self.objects.get(src)?.clone();
                let from = (*src_offset as usize).min(s.data.len());
                let to = (from + *len as usize).min(s.data.len());
                put(&mut self.create(dst).data, *dst_offset, &s.data[from..to]);
            }
            Op::Rename { src, dst } => {
                if self.objects.contains_key(dst) {
                    return None;
                }
                let o = self.objects.remove(src)?;
                self.objects.insert(dst.clone(), o);
            }
            Op::CreateCollection => {
                if self.collections.contains_key(c) {
                    return None;
                }
                self.collections.insert(*c, Collection::default());
            }
            Op::RemoveCollection => drop(self.collections.remove(c)),
            Op::SetMeta { meta } => self.collections.get_mut(c)?.meta = meta.clone(),
            Op::LogAppend { version, entry } => {
                let c = self.collections.get_mut(c)?;
                if *version <= c.head {
                    return None;
                }
                c.head = *version;
                c.log.insert(*version, entry.clone());
            }
            Op::LogTrim { to } => self.collections.get_mut(c)?.log.retain(|v, _| v > to),
        }
        Some(())
    }
}

fn put(data: &mut Vec<u8>, offset: u64, new: &[u8]) {
    if new.is_empty() {
        return;
    }
    let (at, end) = (offset as usize, offset as usize + new.len());
    data.resize(data.len().max(end), 0);
    data[at..end].copy_from_slice(new);
}

/// Panics with what differs.
pub fn compare(store: &Store, model: &Model, what: &str) {
    let start = ObjectId {
        shard: i8::MIN,
        object: HObject::min(),
    };
    let listed = store.list(&start, usize::MAX).unwrap();
    let wanted: Vec<_> = model.objects.keys().cloned().collect();
    assert_eq!(listed, wanted, "{what}: list");
    for (oid, o) in &model.objects {
        let name = oid.object.to_string();
        let st = store.stat(oid).unwrap();
        assert_eq!(st.size, o.data.len() as u64, "{what}: size of {name}");
        let data = store.read(oid, 0, u64::MAX).unwrap();
        if data != o.data {
            let at = data.iter().zip(&o.data).position(|(a, b)| a != b);
            panic!("{what}: data of {name} differs at {at:?} of {}", o.data.len());
        }
        let mid = o.data.len() as u64 / 3;
        let part = store.read(oid, mid, 5000).unwrap();
        let end = o.data.len().min(mid as usize + 5000);
        assert_eq!(part, o.data[mid as usize..end], "{what}: part of {name}");
        for (at, len) in holes(&store.allocated(oid, 0, u64::MAX).unwrap(), st.size) {
            let hole = &o.data[at as usize..(at + len) as usize];
            assert!(hole.iter().all(|b| *b == 0), "{what}: {name} has data in a hole");
        }
        let attrs: Vec<_> = o.attrs.clone().into_iter().collect();
        assert_eq!(store.attrs(oid).unwrap(), attrs, "{what}: attributes of {name}");
        assert_eq!(
            store.omap_header(oid).unwrap(),
            o.header,
            "{what}: omap header of {name}"
        );
        let page = store
            .omap_range(oid, Bound::Unbounded, usize::MAX, usize::MAX)
            .unwrap();
        let omap: Vec<_> = o.omap.clone().into_iter().collect();
        assert_eq!(page.entries, omap, "{what}: omap of {name}");
        assert_eq!(st.omap_keys, omap.len() as u64, "{what}: omap keys of {name}");
        for k in o.omap.keys().take(2) {
            let rest = store.omap_range(oid, Bound::Excluded(k), 2, usize::MAX).unwrap();
            let want: Vec<_> = o
                .omap
                .range::<Bytes, _>((Bound::Excluded(k), Bound::Unbounded))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            assert_eq!(rest.more, want.len() > 2, "{what}: more omap of {name}");
            assert_eq!(
                rest.entries,
                want[..want.len().min(2)],
                "{what}: omap page of {name}"
            );
            assert_eq!(
                store
                    .omap_get(oid, &[k.clone(), Bytes::from("no")])
                    .unwrap()
                    .len(),
                1
            );
        }
    }
    let wanted: Vec<_> = model.collections.keys().copied().collect();
    assert_eq!(store.collections(), wanted, "{what}: collections");
    for (c, m) in &model.collections {
        assert_eq!(store.meta(c).unwrap(), m.meta, "{what}: metadata of {c}");
        let log: Vec<_> = m.log.clone().into_iter().collect();
        assert_eq!(store.log_entries(c).unwrap(), log, "{what}: log of {c}");
    }
    let objects: u64 = store.usage().values().map(|u| u.objects).sum();
    assert_eq!(objects, model.objects.len() as u64, "{what}: counted objects");
}

fn holes(parts: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = 0;
    for (start, len) in parts {
        out.push((at, start - at));
        at = start + len;
    }
    out.push((at, size - at));
    out
}

pub fn check(disk: &SimDisk, what: &str) {
    let report = Store::check_on(Arc::new(disk.clone()), &with_keys()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
}

/// Makes transactions that are mostly valid.
pub struct Generator {
    pub dice: Dice,
    version: u64,
    fill: u8,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            version: 0,
            fill: 0,
        }
    }

    /// Goes on behind the log versions that others gave.
    pub fn after(seed: u64, version: u64) -> Self {
        Self {
            version,
            ..Self::new(seed)
        }
    }

    pub fn first() -> Transaction {
        let mut t = Transaction::new(coll(0));
        t.ops.push(Op::CreateCollection);
        t
    }

    fn oid(&mut self) -> ObjectId {
        oid(self.dice.below(6))
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        self.fill = self.fill.wrapping_add(1) | 1;
        let fill = self.fill;
        (0..len)
            .map(|i| fill.wrapping_add((i / 512) as u8))
            .collect::<Vec<_>>()
            .into()
    }

    fn offset(&mut self) -> u64 {
        let block = self.dice.below(12) * 4096;
        match self.dice.below(3) {
            0 => block,
            1 => block + self.dice.below(4096),
            _ => self.dice.below(9000),
        }
    }

    fn len(&mut self) -> u64 {
        match self.dice.below(5) {
            0 => 4096,
            1 => (1 + self.dice.below(6)) * 4096,
            2 => self.dice.below(20_000),
            _ => self.dice.below(6000),
        }
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("k{}", self.dice.below(8)))
    }

    fn small(&mut self) -> Bytes {
        let len = self.dice.below(60);
        self.bytes(len)
    }

    /// Of an attribute or a header: some are too large for the object's record.
    fn value(&mut self) -> Bytes {
        match self.dice.below(4) {
            0 => {
                let len = 3000 + self.dice.below(4000);
                self.bytes(len)
            }
            _ => self.small(),
        }
    }

    pub fn op(&mut self) -> Op {
        let oid = self.oid();
        match self.dice.below(26) {
            0 => Op::Touch { oid },
            1..=7 => {
                let (offset, len) = (self.offset(), self.len());
                Op::Write {
                    oid,
                    offset,
                    data: self.bytes(len),
                }
            }
            8 => Op::Zero {
                oid,
                offset: self.offset(),
                len: self.len(),
            },
            9 => Op::Truncate {
                oid,
                size: self.offset(),
            },
            10 => Op::Remove { oid },
            11 | 12 => Op::SetAttrs {
                oid,
                attrs: vec![(self.key(), self.value())],
            },
            13 => Op::RemoveAttr {
                oid,
                name: self.key(),
            },
            14 => Op::RemoveAttrs { oid },
            15 | 16 => {
                let n = 1 + self.dice.below(4);
                let entries = (0..n).map(|_| (self.key(), self.small())).collect();
                Op::OmapSet { oid, entries }
            }
            17 => Op::OmapRemove {
                oid,
                keys: vec![self.key(), self.key()],
            },
            18 => Op::OmapRemoveRange {
                oid,
                first: self.key(),
                last: self.key(),
            },
            19 => Op::OmapClear { oid },
            20 => Op::OmapSetHeader {
                oid,
                header: self.value(),
            },
            21 | 22 => Op::Clone {
                src: oid,
                dst: self.oid(),
            },
            23 => {
                let src_offset = self.offset();
                let shift = if self.dice.below(3) == 0 {
                    77
                } else {
                    self.dice.below(3) * 4096
                };
                Op::CloneRange {
                    src: oid,
                    dst: self.oid(),
                    src_offset,
                    len: self.len(),
                    dst_offset: src_offset + shift,
                }
            }
            24 => Op::Rename {
                src: oid,
                dst: self.oid(),
            },
            _ => Op::SetMeta { meta: self.small() },
        }
    }

    pub fn transaction(&mut self) -> Transaction {
        let c = coll(self.dice.below(2) as u32 * u32::from(self.dice.below(8) == 0));
        let mut t = Transaction::new(c);
        for _ in 0..1 + self.dice.below(3) {
            t.ops.push(self.op());
        }
        match self.dice.below(30) {
            0 => t.ops.push(Op::CreateCollection),
            1 => t.ops.push(Op::RemoveCollection),
            2..=5 => t.ops.push(Op::LogTrim {
                to: EVersion::new(1, self.version - self.dice.below(self.version.min(20) + 1)),
            }),
            _ => {}
        }
        self.version += 1;
        t.ops.push(Op::LogAppend {
            version: EVersion::new(1, self.version),
            entry: self.small(),
        });
        t
    }
}
