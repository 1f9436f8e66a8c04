//! Whole gateways over a pool in memory: random puts, deletes, uploads and listings of several of them against a map, while shards
//! split, answers are lost, gateways are killed, and buckets are collected.

mod counts;
mod expiry;
mod left;
mod moving;
mod notify;
mod roles;
mod sealed;
mod spares;
mod survey;
mod swift;
mod usage;
mod versions;

use crate::buckets::{BUCKETS, Buckets, COUNTS};
use crate::classes::CLASSES;
use crate::courier::Gatherer;
use crate::data::{DataStore, Digests};
use crate::expiry::{Done, Expiry};
use crate::fake::Fake;
use crate::gc::{Collector, Round};
use crate::history::{Versioning, Which};
use crate::index::Index;
use crate::multipart::{Named, Whole};
use crate::objects::{Condition, Item, Listed, Listing, New, Objects, Terms};
use crate::record::{Attributes, Data, Phase, STRIPE};
use crate::topics::Topics;
use crate::{Error, Result, accounts};
use bytes::Bytes;
use futures_core::Stream;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

const SPLIT_AT: u64 = 16;

/// What counts nothing.
struct Blind;

impl Digests for Blind {
    fn update(&mut self, _: &[u8]) {}
}

struct Once(Option<Bytes>);

impl Stream for Once {
    type Item = std::result::Result<Bytes, String>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

#[derive(Clone)]
struct Gate {
    pool: Fake,
    objects: Objects<Fake>,
    buckets: Buckets<Fake>,
    /// Milliseconds of a day, as lifecycles count.
    day: u64,
}

impl Gate {
    fn new(of: &Fake, gateway: u64) -> Self {
        let mut pool = of.clone();
        pool.gateway = gateway;
        let clock = pool.clock();
        let index = Index::new(pool.clone(), clock.clone(), SPLIT_AT);
        let data = DataStore::new(pool.classes(), index.clone(), clock.clone());
        Self {
            buckets: Buckets::new(pool.clone(), index.clone(), clock.clone()),
            objects: Objects::new(index, data, clock),
            pool,
            day: crate::lifecycle::DAY,
        }
    }

    /// The same, which makes claims before they are needed.
    fn sparing(mut self) -> Self {
        self.objects.data = self.objects.data.sparing();
        self
    }

    async fn make(&self, name: &str) -> String {
        accounts::ensure(&self.pool, BUCKETS).await.unwrap();
        accounts::ensure(&self.pool, COUNTS).await.unwrap();
        let how = (false, "", &Default::default());
        self.buckets.create(name, "u", how).await.unwrap();
        self.buckets.get(name).await.unwrap().id
    }

    async fn put(&self, bucket: &str, key: &str, data: &Bytes, terms: &Terms) -> Result<()> {
        let mut body = Once(Some(data.clone()).filter(|d| !d.is_empty()));
        let length = Some(data.len() as u64);
        let stored = self
            .objects
            .data
            .take((bucket, key), (&mut body, None), length, u64::MAX, &mut Blind)
            .await?;
        let new = New {
            stored,
            etag: format!("{:x}", data.len()),
            attributes: Attributes::default(),
            checksum: None,
            lock: Default::default(),
            sealed: None,
        };
        self.objects.put(bucket, key, new, terms).await.map(drop)
    }

    async fn read(&self, bucket: &str, key: &str) -> Result<Option<Bytes>> {
        let entry = match self.objects.entry(bucket, key).await {
            Err(Error::NoSuchKey) => return Ok(None),
            other => other?,
        };
        let mut reader = self.objects.data.reader(&entry, (0, entry.size), None).await?;
        let mut all = Vec::new();
        while let Some(chunk) = reader.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(Some(all.into()))
    }

    async fn names(&self, bucket: &str, mut asked: Listing) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let listed = self.objects.list(bucket, &asked).await?;
            all.extend(listed.items.iter().map(|i| i.name().to_string()));
            if !listed.more {
                return Ok(all);
            }
            asked.after = all.last().cloned();
        }
    }

    async fn tend(&self) {
        while let Some(shard) = self.objects.index.grown() {
            // What fails is tried again when more was added.
            let _ = self.objects.index.tend(&shard).await;
        }
        self.objects.data.release(false).await;
    }

    fn gatherer(&self) -> Gatherer<Fake> {
        let (index, clock) = (self.objects.index.clone(), self.objects.clock.clone());
        Gatherer::new(index, Topics::new(self.pool.clone(), clock.clone()), clock)
    }

    fn collector(&self, wait: u64) -> Collector<Fake> {
        Collector {
            index: self.objects.index.clone(),
            data: self.objects.data.clone(),
            buckets: self.buckets.clone(),
            clock: self.objects.clock.clone(),
            expiry: Expiry {
                objects: self.objects.clone(),
                buckets: self.buckets.clone(),
                clock: self.objects.clock.clone(),
                day: self.day,
            },
            wait,
        }
    }

    /// With what lifecycles do beside.
    async fn collect(&self, wait: u64) -> Round {
        self.end_terms().await;
        self.collector(wait).round().await.unwrap_or_default()
    }

    async fn end_terms(&self) -> Done {
        self.collector(0).lifecycles().await.unwrap_or_default()
    }

    /// Fails where a shard is being split, or is in no bucket's index. Their number.
    async fn check_shards(&self) -> usize {
        let mut reached = BTreeSet::from([BUCKETS.to_string()]);
        for (_, bucket) in self.buckets.all().await.unwrap() {
            reached.insert(format!("index.{}", bucket.id));
            let (index, mut shard) = (&self.objects.index, None);
            loop {
                let seen = index
                    .shard_page(&bucket.id, shard.as_deref(), &Bytes::new(), b'i')
                    .await
                    .unwrap();
                assert_eq!(seen.state.phase, Phase::Open, "{}", seen.shard);
                reached.insert(seen.shard);
                match seen.state.next {
                    Some(next) => shard = Some(next),
                    None => break,
                }
            }
        }
        let world = self.pool.lock();
        let index = world.objects.keys().filter(|n| n.starts_with("index."));
        let lost: Vec<_> = index.filter(|n| !reached.contains(*n)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        reached.len()
    }

    /// Removes what can be, and fails where data is left that no entry or part refers to, or a shard in the midst of something.
    async fn settle(&self, referred: usize) {
        self.pool.lock().fails = 0;
        for _ in 0..3 {
            self.pool.pass(Duration::from_secs(7200));
            self.collect(0).await;
        }
        self.check_shards().await;
        let world = self.pool.lock();
        let data: Vec<&String> = world
            .objects
            .keys()
            .filter(|n| !n.starts_with("index.") && ![BUCKETS, COUNTS, CLASSES].contains(&n.as_str()))
            .collect();
        assert_eq!(data.len(), referred, "{data:?}");
    }
}

fn listing(max: usize) -> Listing {
    Listing {
        max,
        ..Listing::default()
    }
}

fn data_of(n: u64) -> Bytes {
    Bytes::from(format!("data {n}"))
}

fn shards(pool: &Fake, bucket: &str) -> usize {
    let first = format!("index.{bucket}.");
    pool.lock()
        .objects
        .keys()
        .filter(|n| n.starts_with(&first))
        .count()
}

fn run<F: Future>(main: F) -> F::Output {
    io::task::block_on(main).unwrap()
}

/// What a key may hold, as far as its only writer was told.
type May = BTreeMap<String, BTreeSet<Option<Bytes>>>;

/// One gateway's work on keys of its own: what it was told is so, what it was not told may be so.
async fn work(gate: Gate, bucket: String, keys: Vec<String>, steps: usize, may: &mut May) {
    for _ in 0..steps {
        let random = &gate.pool.random;
        let key = &keys[random.below(keys.len() as u64) as usize];
        let held = may.entry(key.clone()).or_insert_with(|| BTreeSet::from([None]));
        match random.below(10) {
            0..=5 => {
                let data = data_of(random.next());
                held.insert(Some(data.clone()));
                if gate.put(&bucket, key, &data, &Terms::default()).await.is_ok() {
                    *held = BTreeSet::from([Some(data)]);
                }
            }
            6 | 7 => {
                held.insert(None);
                if gate
                    .objects
                    .delete(&bucket, key, Which::Current, &Terms::default())
                    .await
                    .is_ok()
                {
                    *held = BTreeSet::from([None]);
                }
            }
            _ => {
                if let Ok(now) = gate.read(&bucket, key).await {
                    assert!(held.contains(&now), "{key}: {now:?} is none of {held:?}");
                }
            }
        }
        gate.tend().await;
    }
}

async fn check_all(gate: &Gate, bucket: &str, may: &May) -> usize {
    let names = gate.names(bucket, listing(5)).await.unwrap();
    assert!(names.is_sorted(), "{names:?}");
    let mut there = 0;
    for (key, held) in may {
        let now = gate.read(bucket, key).await.unwrap();
        assert!(held.contains(&now), "{key}: {now:?} is none of {held:?}");
        assert_eq!(names.contains(key), now.is_some(), "{key}");
        there += usize::from(now.is_some());
    }
    assert_eq!(names.len(), there);
    there
}

#[test]
fn what_was_acknowledged_is_there_whatever_fails_and_splits() {
    let split = std::cell::Cell::new(0);
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let first = Gate::new(&pool, 0);
            let bucket = first.make("b").await;
            pool.lock().fails = [0, 40, 12][seed as usize % 3];
            let gates: Vec<Gate> = (1..=3).map(|n| Gate::new(&pool, n).sparing()).collect();
            let mut mays: Vec<May> = vec![May::new(); 3];
            let keys = |n: usize| (0..40).map(|i| format!("k{:02}", i * 3 + n)).collect();
            let [a, b, c] = &mut mays[..] else { unreachable!() };
            tokio::join!(
                work(gates[0].clone(), bucket.clone(), keys(0), 120, a),
                work(gates[1].clone(), bucket.clone(), keys(1), 120, b),
                work(gates[2].clone(), bucket.clone(), keys(2), 120, c),
                async {
                    for _ in 0..20 {
                        first.collect(900_000).await;
                    }
                }
            );
            pool.lock().fails = 0;
            let all: May = mays.into_iter().flatten().collect();
            let there = check_all(&Gate::new(&pool, 9), &bucket, &all).await;
            split.set(split.get() + usize::from(shards(&pool, &bucket) > 1));
            Gate::new(&pool, 9).settle(there).await;
            check_all(&Gate::new(&pool, 9), &bucket, &all).await;
        });
    }
    // Where each twelfth answer is lost some are not.
    assert!(split.get() > 40, "{}", split.get());
}

#[test]
fn a_gateway_may_be_killed_at_any_point() {
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let bucket = Gate::new(&pool, 0).make("b").await;
            let mut may = May::new();
            let keys: Vec<String> = (0..60).map(|i| format!("k{i:02}")).collect();
            // Each goes on from what the one before left.
            for gateway in 1..=6 {
                pool.lock().killed.insert(gateway, 60 + pool.random.below(400));
                let mut gate = Gate::new(&pool, gateway);
                if gateway % 2 == 0 {
                    gate = gate.sparing();
                }
                let worked = work(gate, bucket.clone(), keys.clone(), 400, &mut may);
                tokio::select! {
                    () = worked => {}
                    () = pool.death() => {}
                }
                pool.pass(Duration::from_secs(61));
            }
            let last = Gate::new(&pool, 9);
            let there = check_all(&last, &bucket, &may).await;
            last.settle(there).await;
            check_all(&last, &bucket, &may).await;
        });
    }
}

#[test]
fn a_listing_shows_what_was_there_all_the_time_once_and_in_order() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let (writer, reader) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            let bucket = writer.make("b").await;
            let stays: Vec<String> = (0..50).map(|i| format!("s{i:02}")).collect();
            for key in &stays {
                writer
                    .put(&bucket, key, &data_of(1), &Terms::default())
                    .await
                    .unwrap();
            }
            let writes = async {
                for i in 0..200 {
                    let key = format!("s{:02}x{i}", pool.random.below(50));
                    writer
                        .put(&bucket, &key, &data_of(2), &Terms::default())
                        .await
                        .unwrap();
                    writer.tend().await;
                }
            };
            let reads = async {
                for max in [3, 9, 50, 1000] {
                    let names = reader.names(&bucket, listing(max)).await.unwrap();
                    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
                    assert!(stays.iter().all(|k| names.contains(k)), "seed {seed}: {names:?}");
                }
            };
            tokio::join!(writes, reads);
            assert!(shards(&pool, &bucket) > 3);
        });
    }
}

#[test]
fn prefixes_are_cut_at_the_delimiter() {
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let mut keys: Vec<String> = (0..40).map(|i| format!("a/{i:02}")).collect();
        keys.extend(["a", "a0", "b/c/d", "b/e", "é/ü", "z", "\u{0}", "\u{0}\u{1}"].map(str::to_string));
        for key in &keys {
            gate.put(&bucket, key, &data_of(1), &Terms::default())
                .await
                .unwrap();
            gate.tend().await;
        }
        assert!(shards(&pool, &bucket) > 1);
        let check = async |prefix: &str, want: &[&str]| {
            for max in [1, 2, 1000] {
                let asked = Listing {
                    prefix: prefix.into(),
                    delimiter: Some("/".into()),
                    after: None,
                    max,
                };
                assert_eq!(gate.names(&bucket, asked).await.unwrap(), want, "{prefix} {max}");
            }
        };
        check("", &["\u{0}", "\u{0}\u{1}", "a", "a/", "a0", "b/", "z", "é/"]).await;
        check("b/", &["b/c/", "b/e"]).await;
        check(
            "a/0",
            &[
                "a/00", "a/01", "a/02", "a/03", "a/04", "a/05", "a/06", "a/07", "a/08", "a/09",
            ],
        )
        .await;
        check("nothing", &[]).await;
        for max in [1, 2, 7] {
            let asked = Listing {
                delimiter: Some("/".into()),
                ..listing(max)
            };
            let mut listed = Listed::default();
            let ended = gate
                .objects
                .list_into(&bucket, &asked, &mut listed)
                .await
                .unwrap();
            // It says itself after which one to go on.
            assert_eq!(ended.more.as_deref(), listed.items.last().map(Item::name));
            assert_eq!((ended.items, listed.items.len()), (max, max));
        }
        let listed = gate.objects.list(&bucket, &listing(1000)).await.unwrap();
        assert!(listed.items.iter().all(|i| matches!(i, Item::Object(..))));
        assert_eq!(listed.items.len(), keys.len());
    });
}

#[test]
fn a_condition_holds_when_it_takes_effect() {
    run(async {
        let pool = Fake::new(3);
        let gates: Vec<Gate> = (1..=4).map(|n| Gate::new(&pool, n)).collect();
        let bucket = gates[0].make("b").await;
        let absent = Terms {
            condition: Condition {
                matches: None,
                none_match: Some(crate::objects::Etags::Any),
            },
            ..Terms::default()
        };
        for round in 0..20 {
            let key = format!("k{round}");
            let data: Vec<Bytes> = (0..4).map(data_of).collect();
            let put = |n: usize| gates[n].put(&bucket, &key, &data[n], &absent);
            let (a, b, c, d) = tokio::join!(put(0), put(1), put(2), put(3));
            let won: Vec<usize> = [&a, &b, &c, &d]
                .iter()
                .enumerate()
                .filter(|(_, r)| r.is_ok())
                .map(|(n, _)| n)
                .collect();
            let [won] = won[..] else {
                panic!("{a:?} {b:?} {c:?} {d:?}")
            };
            assert_eq!(
                gates[0].read(&bucket, &key).await.unwrap(),
                Some(data[won].clone())
            );
        }
        gates[0].settle(20).await;
    });
}

async fn part(gate: &Gate, upload: (&str, &str, &str), number: u32, size: u64) -> Result<Named> {
    let data = Bytes::from(vec![number as u8; size as usize]);
    let mut body = Once(Some(data));
    let stored = gate
        .objects
        .data
        .take(
            (upload.0, upload.1),
            (&mut body, None),
            None,
            u64::MAX,
            &mut Blind,
        )
        .await?;
    let etag = format!("{number}-{size}");
    gate.objects
        .put_part(upload, number, stored, etag.clone(), None)
        .await?;
    Ok(Named {
        number,
        etag,
        checksum: None,
    })
}

fn whole(_: &crate::record::Upload, _: &[(&Named, &crate::record::Part)]) -> Result<Whole> {
    Ok(Whole {
        etag: "e-2".into(),
        checksum: None,
    })
}

#[test]
fn an_upload_in_parts_becomes_an_object_without_its_data_being_copied() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let id = gate
            .objects
            .begin_upload(&bucket, "k", Attributes::default(), None, Default::default())
            .await
            .unwrap();
        let upload = (bucket.as_str(), "k", id.as_str());
        let big = STRIPE + (1 << 20);
        let one = part(&gate, upload, 1, big).await.unwrap();
        let again = part(&gate, upload, 1, big + 1).await.unwrap();
        let two = part(&gate, upload, 2, 10).await.unwrap();
        part(&gate, upload, 3, 10).await.unwrap();
        let complete = async |named: &[Named]| {
            gate.objects
                .complete(upload, named, &Terms::default(), whole)
                .await
        };
        assert_eq!(
            complete(&[one, two.clone()]).await.unwrap_err(),
            Error::InvalidPart
        );
        assert_eq!(
            complete(&[two.clone(), again.clone()]).await.unwrap_err(),
            Error::PartOrder
        );
        let page = gate.objects.parts(upload, 1, 1).await.unwrap();
        assert_eq!((page.parts[0].0, page.more), (2, true));
        let entry = complete(&[again.clone(), two.clone()]).await.unwrap();
        assert_eq!((entry.size, entry.parts), (big + 1 + 10, 2));
        assert!(matches!(entry.data, Data::Manifest(..)));
        // Asked again by somebody who did not hear it.
        assert_eq!(complete(&[again, two]).await.unwrap(), entry);
        let read = gate.read(&bucket, "k").await.unwrap().unwrap();
        assert_eq!(read.len() as u64, entry.size);
        assert!(
            read[..big as usize + 1].iter().all(|b| *b == 1)
                && read[big as usize + 1..].iter().all(|b| *b == 2)
        );
        // Two stripes, one, and the manifest; the replaced part and the unused one are gone.
        gate.settle(4).await;
        let other = gate
            .objects
            .begin_upload(&bucket, "k", Attributes::default(), None, Default::default())
            .await
            .unwrap();
        part(&gate, (&bucket, "k", &other), 1, 10).await.unwrap();
        gate.objects.abort((&bucket, "k", &other)).await.unwrap();
        gate.objects
            .delete(&bucket, "k", Which::Current, &Terms::default())
            .await
            .unwrap();
        gate.settle(0).await;
        assert!(
            gate.objects
                .uploads(&bucket, "", None, 10)
                .await
                .unwrap()
                .uploads
                .is_empty()
        );
    });
}

#[test]
fn a_part_that_comes_while_others_are_completed_is_in_it_or_is_none() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let (gate, other) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            let bucket = gate.make("b").await;
            let id = gate
                .objects
                .begin_upload(&bucket, "k", Attributes::default(), None, Default::default())
                .await
                .unwrap();
            let upload = (bucket.as_str(), "k", id.as_str());
            let named = [part(&gate, upload, 1, 10).await.unwrap()];
            let absent = Terms::default();
            let (done, late) = tokio::join!(
                gate.objects.complete(upload, &named, &absent, whole),
                part(&other, upload, 1, 10)
            );
            assert!(
                done.is_ok() && !matches!(late, Err(ref e) if *e != Error::NoSuchUpload),
                "{done:?} {late:?}"
            );
            gate.settle(1).await;
            assert_eq!(gate.read(&bucket, "k").await.unwrap().map(|d| d.len()), Some(10));
        });
    }
}

#[test]
fn a_bucket_is_deleted_only_when_nothing_is_in_it() {
    for seed in 1..=80 {
        run(async {
            let pool = Fake::new(seed);
            let (writer, deleter) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            let bucket = writer.make("b").await;
            for i in 0..40 {
                writer
                    .put(&bucket, &format!("k{i}"), &data_of(i), &Terms::default())
                    .await
                    .unwrap();
                writer.tend().await;
            }
            for i in 0..40 {
                writer
                    .objects
                    .delete(&bucket, &format!("k{i}"), Which::Current, &Terms::default())
                    .await
                    .unwrap();
            }
            let nothing = Terms::default();
            let data = data_of(9);
            let (put, deleted) = tokio::join!(
                writer.put(&bucket, "late", &data, &nothing),
                deleter.buckets.delete("b")
            );
            assert!(
                put.is_err() || deleted.is_err(),
                "seed {seed}: an object went with its bucket"
            );
            if deleted.is_err() {
                // Taken back: it serves as before.
                deleter
                    .objects
                    .delete(&bucket, "late", Which::Current, &nothing)
                    .await
                    .unwrap();
                deleter.buckets.delete("b").await.unwrap();
            }
            assert!(writer.put(&bucket, "k", &data, &nothing).await.is_err());
            deleter.settle(0).await;
            let left: Vec<String> = pool.lock().objects.keys().cloned().collect();
            assert_eq!(left, [BUCKETS, COUNTS], "the index is left");
            writer.make("b").await;
        });
    }
}

#[test]
fn a_deletion_that_was_left_half_way_is_taken_back() {
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let gate = Gate::new(&pool, 0);
            let bucket = gate.make("b").await;
            let killed = Gate::new(&pool, 1);
            pool.lock().killed.insert(1, 1 + seed % 8);
            tokio::select! {
                done = killed.buckets.delete("b") => assert!(done.is_ok()),
                () = pool.death() => {}
            }
            pool.pass(Duration::from_secs(61));
            gate.collect(900_000).await;
            match gate.buckets.get("b").await {
                Ok(_) => gate
                    .put(&bucket, "k", &data_of(1), &Terms::default())
                    .await
                    .unwrap(),
                Err(e) => assert_eq!(e, Error::NoSuchBucket),
            }
        });
    }
}

#[test]
fn a_writer_that_was_given_up_cannot_commit() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let mut body = Once(Some(data_of(1)));
        let stored = gate
            .objects
            .data
            .take((&bucket, "k"), (&mut body, None), None, u64::MAX, &mut Blind)
            .await
            .unwrap();
        assert_eq!(gate.collect(0).await.given_up, 0);
        pool.pass(Duration::from_secs(3600));
        assert_eq!(
            gate.collect(0).await,
            Round {
                removed: 1,
                given_up: 1,
                buried: 0,
            }
        );
        let new = New {
            stored,
            etag: "e".into(),
            attributes: Attributes::default(),
            checksum: None,
            lock: Default::default(),
            sealed: None,
        };
        let late = gate.objects.put(&bucket, "k", new, &Terms::default()).await;
        assert_eq!(late.unwrap_err(), Error::GivenUp);
        assert_eq!(gate.read(&bucket, "k").await.unwrap(), None);
    });
}

#[test]
fn readers_that_have_begun_keep_what_was_replaced() {
    run(async {
        let pool = Fake::new(2);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        gate.put(&bucket, "k", &data_of(1), &Terms::default())
            .await
            .unwrap();
        let old = gate.objects.entry(&bucket, "k").await.unwrap();
        gate.put(&bucket, "k", &data_of(2), &Terms::default())
            .await
            .unwrap();
        assert_eq!(gate.collect(60_000).await.removed, 0);
        let mut reader = gate.objects.data.reader(&old, (0, old.size), None).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Some(data_of(1)));
        pool.pass(Duration::from_secs(61));
        assert_eq!(gate.collect(60_000).await.removed, 1);
        assert_eq!(gate.read(&bucket, "k").await.unwrap(), Some(data_of(2)));
    });
}
