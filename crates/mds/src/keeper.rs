//! Rows and the journal in the metadata pool, and work on files' objects, over our RADOS client.
//!
//! Each call is one piece of work that ends with an event for the machine. What fails is tried again until it succeeds, except where
//! the cluster says that we are not to write any more.
//!
//! Not here: when what is done ([`crate::machine`]).

use crate::Error;
use crate::backtrace;
use crate::follow::{Followed, Want};
use crate::journal::{self, Head};
use crate::machine::{Event, PageRead, Read, Start, Trace, Write};
use crate::membership::Lost;
use crate::place::{self, Fragment};
use crate::row::{self, Job, Key, Row, job};
use bytes::Bytes;
use client::{Client, IoCtx, Operation, SnapContext};
use io::task;
use messages::osd::flag;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, PoolId};

/// Rows of one write.
const ROWS_MAX: usize = 500;
/// Writes of rows, and objects of a job, under way at once.
const AT_ONCE: usize = 16;
/// What is wrong where a file system that was active has no journal or no root.
const GONE: &str = "is not there, though this file system was active before; nothing was changed. Bring the pool's objects back and \
                    say 'ceph mds repaired', or make the file system anew";
const RETRY: Duration = Duration::from_millis(500);
/// Between two tries of what nobody waits for, at most: each time it is twice as long.
const RETRY_MAX: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Keeper {
    client: Client,
    rows: IoCtx,
    pool: PoolId,
}

/// Metadata is written also where a pool is full: otherwise nothing could be deleted.
fn writing() -> Operation {
    Operation::new().flags(flag::FULL_FORCE)
}

impl Keeper {
    pub fn new(client: Client, pool: PoolId) -> Self {
        let rows = client.pool_by_id(pool);
        Self { client, rows, pool }
    }

    /// Until it succeeds. An error that says that our time is over ends it.
    async fn insist<T, F>(&self, what: &str, work: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = client::Result<T>>,
    {
        self.insist_at(what, RETRY, work).await
    }

    /// The same, less and less often.
    async fn insist_at<T, F>(
        &self,
        what: &str,
        pause_max: Duration,
        mut work: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = client::Result<T>>,
    {
        let mut pause = RETRY;
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(e) if e.errno() == Errno::EBLOCKLISTED => {
                    return Err(Lost(format!("its RADOS client is fenced ({what}: {e})")).into());
                }
                Err(e) if matches!(e, client::Error::Closed) => return Err(e.into()),
                Err(e) => {
                    tracing::warn!("{what}: {e}; trying again");
                    task::sleep(pause).await;
                    pause = (pause * 2).min(pause_max);
                }
            }
        }
    }

    fn damaged(&self, object: &str, what: impl ToString) -> Error {
        Error::Damaged {
            pool: self.pool,
            object: object.to_string(),
            what: what.to_string(),
        }
    }

    // The start

    /// What is there. Only of a `fresh` file system nothing may be: one that was served before has lost its metadata pool's objects, and
    /// a new root over what is left of it would be the end of the rest. Nobody else writes any more; `followed` is what was read before that, and [`Followed::is_still`].
    pub async fn begin(&self, fresh: bool, followed: Followed) -> Result<Start, Error> {
        let head = self.head().await?;
        let start = self.start(head.map(|(head, _)| head), followed).await?;
        if start.is_new {
            return match fresh {
                true => Ok(start),
                false => Err(self.damaged(journal::HEAD, GONE)),
            };
        }
        let root = Key::inode(row::ROOT);
        if !start
            .journal
            .iter()
            .any(|(_, rows)| rows.iter().any(|(k, _)| *k == root))
        {
            let (object, key) = place::of(&root, None);
            let reads = vec![Read {
                object: object.clone(),
                key,
            }];
            match self.load(0, reads).await? {
                Event::Loaded { rows, .. } if rows.iter().any(Option::is_some) => {}
                _ => return Err(self.damaged(&object, GONE)),
            }
        }
        if let Some((head, true)) = head {
            // Before there are rows that an older program does not know. Without a head they are in the journal, which it refuses.
            self.write_head(head).await?;
        }
        Ok(start)
    }

    async fn start(&self, head: Option<Head>, mut followed: Followed) -> Result<Start, Error> {
        let mut start = Start {
            next_segment: head.map_or(1, |h| h.first_segment),
            next_tx: head.map_or(1, |h| h.next_tx),
            is_new: head.is_none(),
            ..Start::default()
        };
        for object in place::WHOLE {
            self.table(object, &mut start.tables).await?;
        }
        let mut said = std::time::Duration::ZERO;
        let clock = self.client.platform().clock.clone();
        followed.begins(start.next_segment);
        while self.read_on(&mut followed).await? {
            let now = clock.monotonic();
            if now > said + Duration::from_secs(1) {
                said = now;
                tracing::info!("replay: {} segments of the journal read", followed.segments());
            }
        }
        followed.fill(&mut start);
        Ok(start)
    }

    /// What another server has written since the last call, until what is held takes so much memory. Nothing is written.
    pub async fn follow(&self, followed: &mut Followed, memory_max: u64) -> Result<(), Error> {
        let head = self.head().await?;
        followed.begins(head.map_or(1, |(head, _)| head.first_segment));
        while followed.memory() < memory_max && self.read_on(followed).await? {}
        Ok(())
    }

    /// One read of the journal. False: that was its end.
    async fn read_on(&self, followed: &mut Followed) -> Result<bool, Error> {
        let Want { segment, offset } = followed.want();
        let name = journal::segment(segment);
        let bytes = self.object(&name, offset).await?;
        match followed.heard(bytes.as_ref()) {
            Err(e) if followed.doubt() => {
                tracing::warn!("{name}: {e}; the journal is read once more");
                Ok(true)
            }
            heard => heard.map_err(|e| self.damaged(&name, e)),
        }
    }

    /// True: it is to be written anew.
    async fn head(&self) -> Result<Option<(Head, bool)>, Error> {
        let Some(bytes) = self.object(journal::HEAD, 0).await? else {
            return Ok(None);
        };
        let head = Head::of_object(&bytes).map_err(|e| self.damaged(journal::HEAD, e))?;
        Ok(Some(head))
    }

    async fn write_head(&self, head: Head) -> Result<(), Error> {
        self.insist(journal::HEAD, || async {
            let op = writing().write_full(head.to_object());
            self.rows.operate(journal::HEAD, op).await?.done().map(drop)
        })
        .await
    }

    /// From there to its end. None: there is no such object.
    async fn object(&self, name: &str, from: u64) -> Result<Option<Bytes>, Error> {
        self.insist(name, || async {
            match self.rows.read(name, from, 0).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(e),
            }
        })
        .await
    }

    async fn table(&self, object: &str, into: &mut Vec<(Key, Row)>) -> Result<(), Error> {
        let all = self
            .insist(object, || async {
                match self.rows.omap(object).await {
                    Ok(all) => Ok(all),
                    Err(e) if e.is_not_found() => Ok(BTreeMap::new()),
                    Err(e) => Err(e),
                }
            })
            .await?;
        for (key, value) in all {
            let key = place::key_of(object, &key).ok_or_else(|| self.damaged(object, "an unknown key"))?;
            let row = Row::from_bytes(&key, &value).map_err(|e| self.damaged(object, e))?;
            into.push((key, row));
        }
        Ok(())
    }

    // Rows

    pub async fn load(&self, id: u64, reads: Vec<Read>) -> Result<Event, Error> {
        let mut by_object: BTreeMap<&str, BTreeSet<Bytes>> = BTreeMap::new();
        for read in &reads {
            by_object
                .entry(&read.object)
                .or_default()
                .insert(read.key.clone());
        }
        let mut found: BTreeMap<(&str, Bytes), Bytes> = BTreeMap::new();
        for (object, keys) in by_object {
            let rows = self
                .insist(object, || async {
                    match self.rows.omap_get(object, &keys).await {
                        Ok(rows) => Ok(rows),
                        Err(e) if e.is_not_found() => Ok(BTreeMap::new()),
                        Err(e) => Err(e),
                    }
                })
                .await?;
            found.extend(rows.into_iter().map(|(k, v)| ((object, k), v)));
        }
        let rows = reads
            .iter()
            .map(|r| found.get(&(r.object.as_str(), r.key.clone())).cloned())
            .collect();
        Ok(Event::Loaded { id, rows })
    }

    pub async fn page(&self, id: u64, read: PageRead) -> Result<Event, Error> {
        let mut rows = Vec::new();
        let mut after = read.key.clone();
        loop {
            let left = read.max - rows.len() as u64;
            let page = self
                .insist(&read.object, || async {
                    match self.rows.omap_page(&read.object, &after, b"", left).await {
                        Ok(page) => Ok(Some(page)),
                        Err(e) if e.is_not_found() => Ok(None),
                        Err(e) => Err(e),
                    }
                })
                .await?;
            let Some(page) = page else {
                return Ok(Event::Paged { id, rows, end: true });
            };
            let more = page.more;
            rows.extend(page.items);
            let full = rows.len() as u64 >= read.max;
            match rows.last() {
                Some((last, _)) if more && !full => after = last.clone(),
                _ => return Ok(Event::Paged { id, rows, end: !more }),
            }
        }
    }

    pub async fn append(&self, segment: u64, new: bool, bytes: Bytes, last_tx: u64) -> Result<Event, Error> {
        let name = journal::segment(segment);
        // An append that was sent twice by us would be in it twice; what is durable under one number of an operation is done once.
        let done = self
            .insist(&name, || {
                let op = writing().append(bytes.clone());
                let op = if new {
                    writing().create(true).append(bytes.clone())
                } else {
                    op
                };
                async { self.rows.operate(&name, op).await?.done() }
            })
            .await;
        done.map(|_| Event::Appended { last_tx })
    }

    pub async fn flush(&self, id: u64, writes: Vec<Write>) -> Result<Event, Error> {
        let mut parts = Vec::new();
        for write in writes {
            let mut set: Vec<(Bytes, Bytes)> = write.set.into_iter().collect();
            let mut remove: Vec<Bytes> = write.remove.into_iter().collect();
            while !set.is_empty() || !remove.is_empty() {
                let rest = set.split_off(set.len().min(ROWS_MAX));
                let kept = remove.split_off(remove.len().min(ROWS_MAX));
                parts.push((write.object.clone(), set, remove));
                (set, remove) = (rest, kept);
            }
        }
        self.each(parts, |keeper, (object, set, remove)| async move {
            let (set, remove) = (set.into_iter().collect(), remove.into_iter().collect());
            keeper.write_rows(&object, &set, &remove).await
        })
        .await?;
        Ok(Event::Flushed { id })
    }

    /// Versions that a snapshot is the last to show.
    pub async fn olds(&self, snap: u64, shard: u64, after: Bytes) -> Result<Event, Error> {
        let (object, prefix) = (place::olds(shard), place::olds_of(snap));
        let page = self
            .insist(&object, || async {
                match self
                    .rows
                    .omap_page(&object, &after, &prefix, ROWS_MAX as u64)
                    .await
                {
                    Ok(page) => Ok(Some(page)),
                    Err(e) if e.is_not_found() => Ok(None),
                    Err(e) => Err(e),
                }
            })
            .await?;
        let (keys, end) = page.map_or((Vec::new(), true), |p| {
            (p.items.into_iter().map(|(k, _)| k).collect(), !p.more)
        });
        Ok(Event::Olds { snap, keys, end })
    }

    /// No file needs this snapshot: OSDs remove what only it shows.
    pub async fn drop_snap(&self, id: u64, snap: u64, pools: Vec<PoolId>) -> Result<Event, Error> {
        for pool in pools {
            let io = self.client.pool_by_id(pool);
            let what = format!("snapshot {snap} of pool {pool}");
            self.insist(&what, || async {
                loop {
                    // Ids are ours; a pool that has not come so far is led there.
                    match io.remove_selfmanaged_snap(snap).await {
                        Err(e) if e.errno() == Errno::EOPNOTSUPP => {}
                        Err(e) if e.is_not_found() => {}
                        Err(e) if e.errno() == Errno::EINVAL => {
                            tracing::warn!("{what}: {e}; its objects stay as they are");
                            return Ok(());
                        }
                        done => return done,
                    }
                    match io.create_selfmanaged_snap().await {
                        Err(e) if e.is_not_found() => return Ok(()),
                        made => drop(made?),
                    }
                }
            })
            .await?;
        }
        Ok(Event::JobDone { id, size: None })
    }

    /// Copies the names of a fragment to its halves. What an earlier try left in these is gone before.
    pub async fn split(&self, dir: u64, fragment: Fragment) -> Result<Event, Error> {
        let halves = fragment.halves();
        for half in halves {
            self.remove(&self.rows, &half.object(dir)).await?;
        }
        let object = fragment.object(dir);
        let mut after = Bytes::new();
        loop {
            let page = self
                .insist(&object, || async {
                    match self.rows.omap_page(&object, &after, b"", ROWS_MAX as u64).await {
                        Ok(page) => Ok(Some(page)),
                        Err(e) if e.is_not_found() => Ok(None),
                        Err(e) => Err(e),
                    }
                })
                .await?;
            let Some(page) = page else { break };
            let mut sets = [BTreeMap::new(), BTreeMap::new()];
            let last = page.items.last().map(|(k, _)| k.clone());
            for (key, value) in page.items {
                let Some(Key::Dentry { hash, .. }) = place::parse_dentry(dir, &key) else {
                    return Err(self.damaged(&object, "a name that cannot be read"));
                };
                let upper = halves[0].end().is_some_and(|end| hash >= end);
                sets[usize::from(upper)].insert(key, value);
            }
            for (half, set) in halves.iter().zip(&sets) {
                if !set.is_empty() {
                    self.write_rows(&half.object(dir), set, &BTreeSet::new()).await?;
                }
            }
            match last {
                Some(last) if page.more => after = last,
                _ => break,
            }
        }
        Ok(Event::Split { dir })
    }

    async fn write_rows(
        &self,
        object: &str,
        set: &BTreeMap<Bytes, Bytes>,
        remove: &BTreeSet<Bytes>,
    ) -> Result<(), Error> {
        self.insist(object, || async {
            let mut op = writing().create(false);
            if !set.is_empty() {
                op = op.set_omap(set);
            }
            if !remove.is_empty() {
                op = op.remove_omap_keys(remove);
            }
            self.rows.operate(object, op).await?.done().map(drop)
        })
        .await
    }

    pub async fn trim(&self, first: u64, next_tx: u64, gone: Vec<u64>) -> Result<Event, Error> {
        let head = Head {
            first_segment: first,
            next_tx,
        };
        self.write_head(head).await?;
        for number in gone {
            self.remove(&self.rows, &journal::segment(number)).await?;
        }
        Ok(Event::Trimmed)
    }

    /// Done for all, some at once.
    async fn each<T, F>(
        &self,
        all: impl IntoIterator<Item = T>,
        work: impl Fn(Self, T) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        let mut under_way = std::collections::VecDeque::new();
        for item in all {
            under_way.push_back(task::spawn_local(work(self.clone(), item)));
            if under_way.len() >= AT_ONCE
                && let Some(first) = under_way.pop_front()
            {
                first.await.map_err(|_| client::Error::Closed)??;
            }
        }
        for rest in under_way {
            rest.await.map_err(|_| client::Error::Closed)??;
        }
        Ok(())
    }

    async fn remove(&self, io: &IoCtx, object: &str) -> Result<(), Error> {
        self.insist(object, || async {
            match io.operate(object, writing().remove()).await?.done() {
                Err(e) if e.is_not_found() => Ok(()),
                done => done.map(drop),
            }
        })
        .await
    }

    /// The object is made where there is none. Of a pool that is no more nothing is to be found.
    pub async fn trace(&self, t: Trace) -> Result<Event, Error> {
        let io = self.pool(t.pool, &t.namespace, t.snap_seq, &t.snaps);
        self.insist_at(&t.object, RETRY_MAX, || async {
            let op = writing()
                .create(false)
                .set_xattr(backtrace::LAYOUT, &t.layout)
                .set_xattr(backtrace::PARENT, &t.parent);
            match io.operate(&t.object, op).await.and_then(|r| r.done()) {
                Err(e) if e.is_not_found() => Ok(()),
                done => done.map(drop),
            }
        })
        .await?;
        Ok(Event::Traced { ino: t.ino })
    }

    // Jobs

    pub async fn job(&self, id: u64, j: Arc<Job>) -> Result<Event, Error> {
        let size = match j.kind {
            job::PURGE => self.purge(&j).await.map(|()| None)?,
            job::CUT => self.cut(&j).await.map(|()| None)?,
            job::PURGE_DIR => self.purge_dir(&j).await.map(|()| None)?,
            job::DROP => {
                let fragment = Fragment {
                    bits: j.bits,
                    value: j.split,
                };
                self.remove(&self.rows, &fragment.object(j.ino))
                    .await
                    .map(|()| None)?
            }
            job::PROBE => Some(self.probe(&j).await?),
            other => {
                tracing::error!("job {id} is of kind {other}, which is not known");
                None
            }
        };
        Ok(Event::JobDone { id, size })
    }

    fn data(&self, j: &Job) -> IoCtx {
        self.pool(PoolId::from(j.layout.pool), &j.pool_ns, j.snap_seq, &j.snaps)
    }

    fn pool(&self, id: PoolId, namespace: &str, snap_seq: u64, snaps: &[u64]) -> IoCtx {
        let mut io = self.client.pool_by_id(id);
        io.set_namespace(namespace.to_string());
        if let Ok(context) = SnapContext::new(snap_seq, snaps.to_vec()) {
            io.set_snap_context(context);
        }
        io
    }

    async fn purge(&self, j: &Job) -> Result<(), Error> {
        let io = self.data(j);
        let objects: Range<u64> = 0..place::objects_of(&j.layout, j.from);
        let ino = j.ino;
        self.each(objects, |keeper, n| {
            let io = io.clone();
            async move { keeper.remove(&io, &place::data_object(ino, n)).await }
        })
        .await
    }

    async fn cut(&self, j: &Job) -> Result<(), Error> {
        let io = self.data(j);
        let objects: Range<u64> = 0..place::objects_of(&j.layout, j.from);
        let (ino, layout, from, to, seq) = (j.ino, j.layout, j.from, j.to, j.truncate_seq);
        let cut = objects.filter_map(|n| {
            let left = place::object_bytes(&layout, to, n);
            (left < place::object_bytes(&layout, from, n)).then_some((n, left))
        });
        self.each(cut, |keeper, (n, left)| {
            let io = io.clone();
            async move {
                let name = place::data_object(ino, n);
                // The first object stays, for those who look for the file by it.
                if left == 0 && n > 0 {
                    return keeper.remove(&io, &name).await;
                }
                keeper
                    .insist(&name, || async {
                        let op = writing().assert_exists().trim_truncate(left, seq);
                        match io.operate(&name, op).await?.done() {
                            Err(e) if e.is_not_found() => Ok(()),
                            done => done.map(drop),
                        }
                    })
                    .await
            }
        })
        .await
    }

    async fn purge_dir(&self, j: &Job) -> Result<(), Error> {
        let (bits, split, ino) = (j.bits, j.split, j.ino);
        // Halves that were being made when the directory went, too.
        let begun = Fragment { bits, value: split }.halves();
        self.each(
            Fragment::all(bits, split).chain(begun),
            |keeper, fragment| async move { keeper.remove(&keeper.rows, &fragment.object(ino)).await },
        )
        .await?;
        // Its backtrace.
        self.remove(&self.rows, &place::data_object(ino, 0)).await
    }

    /// Where the last byte is that a writer left.
    async fn probe(&self, j: &Job) -> Result<u64, Error> {
        let io = self.data(j);
        let mut size = j.to;
        for n in 0..place::objects_of(&j.layout, j.from) {
            if place::object_bytes(&j.layout, j.from, n) <= place::object_bytes(&j.layout, j.to, n) {
                continue;
            }
            let name = place::data_object(j.ino, n);
            let bytes = self
                .insist(&name, || async {
                    match io.stat(&name).await {
                        Ok((bytes, _)) => Ok(bytes),
                        Err(e) if e.is_not_found() => Ok(0),
                        Err(e) => Err(e),
                    }
                })
                .await?;
            size = size.max(place::file_size_of(&j.layout, n, bytes));
        }
        Ok(size.min(j.from))
    }
}
