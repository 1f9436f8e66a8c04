//! A bucket's index: one ordered map over omap objects, the *shards*, cut by key range.
//!
//! The first shard has a fixed name. Each has a [`State`], which says where its range ends and which shard has what follows; so
//! whoever comes to the wrong one is sent on, and the *root*, which lists ranges and shards, is only a shortcut that may lag behind.
//!
//! Invariants: every change of a shard expects the state that its writer saw, in the same operation, so nobody writes to a range that
//! has moved, is moving or is closed. What belongs to one key (entry, uploads, parts) is in one shard at any time, and changes in one
//! operation. A listing reads rows that it may print, and one state for each shard.
//!
//! Splitting, without stopping writers: `split`. Merging is not built: a shard that was emptied stays.

mod chain;
mod list;
mod split;

pub use list::Position;

use crate::amount::Tally;
use crate::notify::{self, Told};
use crate::rados::{Change, Look, Pool, Seen};
use crate::record::{self, Phase, State, escape, is_keyed, is_of_versions, state_row};
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Shards that a walk passes; more is a circle.
const HOPS_MAX: usize = 1_000_000;
/// A change that lost so often to others' is given up.
const TRIES_MAX: u32 = 64;
/// What waits for the end of a split looks again after so long, and after so many looks ends the split itself.
const FROZEN_WAIT: Duration = Duration::from_millis(5);
const FROZEN_LOOKS: u32 = if cfg!(test) { 4 } else { 400 };
/// Buckets whose root is remembered, and shards whose size is.
const ROOTS_MAX: usize = 256;
const SIZES_MAX: usize = 65_536;

type Root = BTreeMap<Bytes, String>;

/// Rows of keys that a shard may have before it is split.
pub const SPLIT_AT: u64 = 10_000;

/// How large a shard is, as far as this gateway knows.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    known: Option<u64>,
    added: u64,
    busy: bool,
    /// It was said that it cannot be split.
    told: bool,
}

struct Inner<P> {
    pool: P,
    clock: Clock,
    split_at: u64,
    roots: Mutex<HashMap<String, Root>>,
    sizes: Mutex<HashMap<String, Size>>,
    tally: Tally,
    told: Told,
}

/// All indexes. Cheap to clone.
pub struct Index<P> {
    inner: Arc<Inner<P>>,
}

impl<P> Clone for Index<P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

/// A shard as it was seen.
pub(crate) struct Located {
    pub shard: String,
    pub state: State,
    pub raw: Bytes,
    pub values: BTreeMap<Bytes, Bytes>,
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
    pub beside: (Vec<(Bytes, Bytes)>, bool),
}

impl Located {
    /// What was looked at, with the state's row in it.
    fn of(shard: String, mut seen: Seen) -> Result<Self> {
        let raw = seen.values.remove(&state_row());
        let raw = raw.ok_or_else(|| Error::Damaged(format!("{shard} has no state")))?;
        Ok(Self {
            shard,
            state: State::from_bytes(&raw)?,
            raw,
            values: seen.values,
            rows: seen.rows,
            more: seen.more,
            beside: seen.beside,
        })
    }
}

/// Rows that were looked at before their update.
pub struct Ahead {
    keys: BTreeSet<Bytes>,
    seen: Located,
}

/// What an update decides on.
pub struct View<'a> {
    pub shard: &'a str,
    values: &'a BTreeMap<Bytes, Bytes>,
    looked: &'a Look,
    /// Of the page that was asked for.
    pub rows: &'a [(Bytes, Bytes)],
    pub more: bool,
}

impl<'a> View<'a> {
    fn of(seen: &'a Located, looked: &'a Look) -> Self {
        Self {
            shard: &seen.shard,
            values: &seen.values,
            looked,
            rows: &seen.rows,
            more: seen.more,
        }
    }
}

impl View<'_> {
    pub fn get<T: Decode>(&self, row: &Bytes) -> Result<Option<T>> {
        let value = self.values.get(row).filter(|v| !v.is_empty());
        Ok(value.map(T::from_bytes).transpose()?)
    }

    /// Rows that were looked for.
    pub fn asked(&self) -> impl Iterator<Item = &Bytes> {
        self.looked.keys.iter()
    }

    pub fn has_page(&self) -> bool {
        self.looked.page.is_some()
    }
}

pub enum Verdict<T> {
    /// It wants to see this, too, all at the same moment.
    Look(Look),
    Leave(T),
    Change(Change, T),
}

pub(crate) fn root_name(bucket: &str) -> String {
    format!("index.{bucket}")
}

pub(crate) fn first_shard(bucket: &str) -> String {
    format!("index.{bucket}.0")
}

/// A row that every root has: whoever adds to it makes none where there is none any more.
fn root_mark() -> Bytes {
    Bytes::from_static(b"!root")
}

fn root_row(start: &[u8]) -> Bytes {
    [b"r", start].concat().into()
}

impl<P: Pool> Index<P> {
    pub fn new(pool: P, clock: Clock, split_at: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                pool,
                clock,
                split_at,
                roots: Mutex::default(),
                sizes: Mutex::default(),
                tally: Tally::default(),
                told: Told::default(),
            }),
        }
    }

    /// What was changed of buckets' contents and is not written yet.
    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    /// What was told of changes that were made here.
    pub(crate) fn told(&self) -> &Told {
        &self.inner.told
    }

    pub(crate) fn pool(&self) -> &P {
        &self.inner.pool
    }

    /// A new bucket's: both objects, which nobody has heard of yet.
    pub async fn create(&self, bucket: &str) -> Result<()> {
        let empty = State {
            version: 1,
            end: None,
            next: None,
            phase: Phase::Open,
            versions: false,
        };
        let root = Change {
            create: true,
            ..Change::default()
        };
        let root = root.setting(&root_mark(), Bytes::from_static(b"1"));
        let shard = Change {
            create: true,
            ..Change::default()
        };
        self.pool().change(&root_name(bucket), root).await?;
        let shard = shard.setting(&state_row(), empty.to_bytes());
        self.pool().change(&first_shard(bucket), shard).await
    }

    /// Reads rows of one key.
    pub async fn get(
        &self,
        bucket: &str,
        key: &str,
        rows: BTreeSet<Bytes>,
    ) -> Result<BTreeMap<Bytes, Bytes>> {
        let look = Look {
            keys: rows,
            ..Look::default()
        };
        Ok(self.look(bucket, &escape(key), &look).await?.values)
    }

    pub async fn get_one<T: Decode>(&self, bucket: &str, key: &str, row: Bytes) -> Result<Option<T>> {
        let values = self.get(bucket, key, BTreeSet::from([row.clone()])).await?;
        Ok(values.get(&row).map(T::from_bytes).transpose()?)
    }

    /// Reads rows of one key at one moment. `decide` may ask for more.
    pub async fn read<T>(
        &self,
        bucket: &str,
        key: &str,
        mut look: Look,
        mut decide: impl FnMut(&View<'_>) -> Result<ControlFlow<T, Look>>,
    ) -> Result<T> {
        let at = escape(key);
        for _ in 0..TRIES_MAX {
            let seen = self.look(bucket, &at, &look).await?;
            match decide(&View::of(&seen, &look))? {
                ControlFlow::Break(done) => return Ok(done),
                ControlFlow::Continue(further) => look.widen(further),
            }
        }
        Err(Error::Busy("others change the same key"))
    }

    /// Changes rows of one key, all together. `decide` sees the rows that it asked for, perhaps several times: what it decides
    /// holds if they are still so when it takes effect.
    pub async fn update<T>(
        &self,
        bucket: &str,
        key: &str,
        rows: BTreeSet<Bytes>,
        decide: impl FnMut(&View<'_>) -> Result<Verdict<T>>,
    ) -> Result<T> {
        let look = Look {
            keys: rows,
            ..Look::default()
        };
        self.update_seen(bucket, key, (look, None), decide).await
    }

    /// What an update of these rows will look at; None: it has to look by itself.
    pub(crate) async fn look_ahead(&self, bucket: &str, at: &Bytes, look: Look) -> Option<Ahead> {
        let seen = self.look(bucket, at, &look).await.ok()?;
        let open = matches!(seen.state.phase, Phase::Open | Phase::Copying(_));
        open.then_some(Ahead {
            keys: look.keys,
            seen,
        })
    }

    /// Where a key is, as far as is remembered.
    pub(crate) fn guess(&self, bucket: &str, at: &Bytes) -> Option<String> {
        self.roots().get(bucket).map(|root| place(root, bucket, at))
    }

    /// The same, of rows and a page of others, of which those may have been looked at before.
    pub async fn update_seen<T>(
        &self,
        bucket: &str,
        key: &str,
        (mut look, ahead): (Look, Option<Ahead>),
        mut decide: impl FnMut(&View<'_>) -> Result<Verdict<T>>,
    ) -> Result<T> {
        let at = escape(key);
        let mut looks = 0;
        let mut ahead = ahead.filter(|a| a.keys == look.keys && look.page.is_none() && look.beside.is_none());
        for _ in 0..TRIES_MAX {
            let seen = match ahead.take() {
                Some(ahead) => ahead.seen,
                None => self.open(bucket, &at, &look, &mut looks).await?,
            };
            let (change, done) = match decide(&View::of(&seen, &look))? {
                Verdict::Look(further) => {
                    look.widen(further);
                    continue;
                }
                Verdict::Leave(done) => return Ok(done),
                Verdict::Change(change, done) => (change, done),
            };
            let adds = change
                .set
                .keys()
                .any(|r| is_keyed(r) && !seen.values.contains_key(r));
            let counted = change.counted;
            let tells = change.set.keys().any(|r| r.first() == Some(&notify::CLASS));
            let change = self.holding(change, &seen, &look);
            let changed = self.pool().change(&seen.shard, change).await;
            if tells {
                // Also what was not heard of may have come to pass.
                self.told().set(&seen.shard);
            }
            match changed {
                Ok(()) => {
                    self.tally().add(bucket, counted);
                    if adds {
                        self.grew(&seen.shard);
                    }
                    return Ok(done);
                }
                Err(e) if e.is_conflict() || e.is_not_found() => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::Busy("others change the same key"))
    }

    /// The change, if all that it was decided on is as it was seen. Notes for a split go along, and the mark of a shard with versions.
    fn holding(&self, mut change: Change, seen: &Located, look: &Look) -> Change {
        change.expect.insert(state_row(), seen.raw.clone());
        for row in &look.keys {
            let value = seen.values.get(row).cloned().unwrap_or_default();
            change.expect.insert(row.clone(), value);
        }
        change.expect.extend(seen.rows.iter().cloned());
        if let Phase::Copying(split) = &seen.state.phase {
            let note = self.inner.clock.random_u64().to_bytes();
            let changed = change.set.keys().chain(&change.unset);
            let moving = |r: &&Bytes| split.moves(r);
            let dirty: Vec<Bytes> = changed.filter(moving).map(|r| record::dirty_row(r)).collect();
            change.set.extend(dirty.into_iter().map(|r| (r, note.clone())));
        }
        if !seen.state.versions && change.set.keys().any(|r| is_of_versions(r)) {
            let mut state = seen.state.clone();
            state.version += 1;
            state.versions = true;
            change.set.insert(state_row(), state.to_bytes());
        }
        change
    }

    /// A shard that takes changes of rows at `at`.
    async fn open(&self, bucket: &str, at: &Bytes, look: &Look, looks: &mut u32) -> Result<Located> {
        loop {
            let seen = self.look(bucket, at, look).await?;
            match &seen.state.phase {
                Phase::Open | Phase::Copying(_) => return Ok(seen),
                Phase::Frozen(split) if *at < split.mid => return Ok(seen),
                Phase::Closed { .. } => return Err(Error::Conflict("the bucket is being deleted")),
                Phase::Frozen(_) | Phase::Filling { .. } => {}
            }
            *looks += 1;
            if *looks % FROZEN_LOOKS == 0 && matches!(seen.state.phase, Phase::Frozen(_)) {
                match self.finish(bucket, &seen.shard).await {
                    // Another was faster.
                    Err(e) if e.is_conflict() || e.is_not_found() || e == split::OVERTAKEN => {}
                    other => {
                        other?;
                    }
                }
            } else if *looks > FROZEN_LOOKS * 4 {
                return Err(Error::Busy("a split of the bucket's index does not end"));
            }
            io::task::sleep(FROZEN_WAIT).await;
        }
    }

    /// The shard that has `at`, and what is to be seen of it.
    pub(crate) async fn look(&self, bucket: &str, at: &Bytes, look: &Look) -> Result<Located> {
        let mut look = look.clone();
        look.keys.insert(state_row());
        let mut shard = self.locate(bucket, at).await?;
        let mut lost = false;
        for _ in 0..HOPS_MAX {
            let seen = match self.pool().look(&shard, look.clone()).await {
                Err(e) if e.is_not_found() && !lost => {
                    // Of a bucket that was deleted, perhaps made again under another id.
                    lost = true;
                    self.forget(bucket);
                    shard = first_shard(bucket);
                    continue;
                }
                Err(e) if e.is_not_found() => return Err(Error::NoSuchBucket),
                other => other?,
            };
            let seen = Located::of(shard, seen)?;
            if let Some(end) = seen.state.end.as_ref().filter(|end| *end <= at) {
                let next = seen.state.next.clone();
                let next = next.ok_or_else(|| Error::Damaged(format!("nothing follows {}", seen.shard)))?;
                self.remember(bucket, end.clone(), next.clone());
                shard = next;
                continue;
            }
            return Ok(seen);
        }
        Err(Error::Damaged(format!("the shards of {bucket} go in a circle")))
    }

    async fn locate(&self, bucket: &str, at: &Bytes) -> Result<String> {
        if let Some(root) = self.roots().get(bucket) {
            return Ok(place(root, bucket, at));
        }
        let root = self.read_root(bucket).await?;
        let shard = place(&root, bucket, at);
        let mut roots = self.roots();
        if roots.len() >= ROOTS_MAX {
            roots.clear();
        }
        roots.insert(bucket.to_string(), root);
        Ok(shard)
    }

    async fn read_root(&self, bucket: &str) -> Result<Root> {
        let (name, mut root) = (root_name(bucket), Root::new());
        let mut after = Bytes::new();
        loop {
            let look = Look::rows(&after, &root_row(b""), crate::rados::PAGE);
            let seen = match self.pool().look(&name, look).await {
                Err(e) if e.is_not_found() => return Err(Error::NoSuchBucket),
                other => other?,
            };
            for (row, shard) in &seen.rows {
                root.insert(row.slice(1..), String::from_utf8_lossy(shard).into_owned());
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(root),
            }
        }
    }

    /// Shards by the root, of one page; and whether it goes on.
    pub(crate) async fn parts(&self, bucket: &str) -> Result<(u64, bool)> {
        let all = root_row(b"");
        let look = Look::rows(&all, &all, crate::rados::PAGE);
        let seen = self.pool().look(&root_name(bucket), look).await?;
        Ok((1 + seen.rows.len() as u64, seen.more))
    }

    fn roots(&self) -> std::sync::MutexGuard<'_, HashMap<String, Root>> {
        self.inner.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, bucket: &str, start: Bytes, shard: String) {
        if let Some(root) = self.roots().get_mut(bucket) {
            root.insert(start, shard);
        }
    }

    pub(crate) fn forget(&self, bucket: &str) {
        self.roots().remove(bucket);
    }

    fn sizes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Size>> {
        self.inner.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grew(&self, shard: &str) {
        let mut sizes = self.sizes();
        if sizes.len() >= SIZES_MAX {
            sizes.retain(|_, s| s.busy);
        }
        sizes.entry(shard.to_string()).or_default().added += 1;
    }
}

fn place(root: &Root, bucket: &str, at: &Bytes) -> String {
    let at = root.range::<Bytes, _>(..=at).next_back();
    at.map_or_else(|| first_shard(bucket), |(_, shard)| shard.clone())
}
