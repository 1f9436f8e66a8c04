//! What others left half-way, or what cannot be done: splits, deletions, uploads that break off, rows that cannot be read.

use super::*;
use crate::data::ROOM;
use crate::index::{first_shard, root_name};
use crate::record::{Garbage, Place, Tag, dirty_row, entry_row, garbage_row};
use crate::settings::CorsRule;
use denc::Encode;
use std::sync::Arc;

/// A body that goes on and on, in silence.
struct Never;

impl Stream for Never {
    type Item = std::result::Result<Bytes, String>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}

/// A stripe, and then the client is gone.
struct Broken(bool);

impl Stream for Broken {
    type Item = std::result::Result<Bytes, String>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0 = !self.0;
        Poll::Ready(Some(match self.0 {
            true => Ok(Bytes::from(vec![1; STRIPE as usize])),
            false => Err("gone".into()),
        }))
    }
}

fn any() -> Terms {
    Terms::default()
}

/// Puts these keys, `k00` and on.
async fn fill(gate: &Gate, bucket: &str, keys: std::ops::Range<u64>) {
    for i in keys {
        gate.put(bucket, &format!("k{i:02}"), &data_of(i), &any())
            .await
            .unwrap();
    }
}

fn data_objects(pool: &Fake) -> usize {
    let world = pool.lock();
    let data = world
        .objects
        .keys()
        .filter(|n| !n.starts_with("index.") && *n != BUCKETS && *n != COUNTS);
    data.count()
}

#[test]
fn a_split_that_is_too_large_for_one_operation_is_given_up() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        fill(&gate, &bucket, 0..40).await;
        pool.lock().rows_max = 10;
        gate.tend().await;
        let seen = gate.objects.index.state(&first_shard(&bucket)).await.unwrap();
        assert_eq!(seen.state.phase, Phase::Open);
        assert_eq!(
            shards(&pool, &bucket),
            2,
            "its copy is left until it is collected"
        );
        fill(&gate, &bucket, 30..40).await;
        gate.settle(40).await;
        assert_eq!(shards(&pool, &bucket), 1);
        // It is tried again when as much was added once more.
        pool.lock().rows_max = 0;
        gate.tend().await;
        assert_eq!(shards(&pool, &bucket), 1);
        fill(&gate, &bucket, 40..40 + SPLIT_AT).await;
        gate.tend().await;
        assert!(shards(&pool, &bucket) > 1);
        gate.settle(40 + SPLIT_AT as usize).await;
    });
}

/// Of a split that was given up; there the key was one to be moved.
#[test]
fn a_note_that_was_left_takes_no_key_out_of_its_range() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        fill(&gate, &bucket, 0..40).await;
        let (shard, low) = (first_shard(&bucket), entry_row("k00"));
        {
            let mut world = pool.lock();
            let omap = &mut world.objects.get_mut(&shard).unwrap().omap;
            omap.insert(dirty_row(&low), Bytes::from_static(b"1"));
        }
        gate.tend().await;
        assert!(shards(&pool, &bucket) > 1);
        let holders = pool
            .lock()
            .objects
            .values()
            .filter(|o| o.omap.contains_key(&low))
            .count();
        assert_eq!(holders, 1);
        for i in 0..40 {
            gate.objects
                .delete(&bucket, &format!("k{i:02}"), Which::Current, &any())
                .await
                .unwrap();
        }
        gate.buckets.delete("b").await.unwrap();
        gate.settle(0).await;
    });
}

#[test]
fn parts_make_a_shard_large_too() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let begin = async |key: &str| {
            let id = gate
                .objects
                .begin_upload(&bucket, key, Attributes::default(), None, Default::default())
                .await
                .unwrap();
            for n in 1..=SPLIT_AT as u32 {
                part(&gate, (&bucket, key, &id), n, 1).await.unwrap();
            }
            gate.tend().await;
        };
        begin("b").await;
        // One key's rows stay together, and are not looked at without end.
        assert_eq!(shards(&pool, &bucket), 1);
        begin("a").await;
        assert_eq!(shards(&pool, &bucket), 2);
        begin("c").await;
        assert_eq!(shards(&pool, &bucket), 3);
        let names = gate.objects.uploads(&bucket, "", None, 10).await.unwrap().uploads;
        let names: Vec<_> = names.iter().map(|u| u.0.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        gate.settle(3 * SPLIT_AT as usize).await;
    });
}

#[test]
fn a_split_is_ended_by_whoever_collects() {
    let mut left = 0;
    for at in 1..=40 {
        run(async {
            let pool = Fake::new(at);
            let gate = Gate::new(&pool, 0);
            let bucket = gate.make("b").await;
            fill(&gate, &bucket, 0..20).await;
            pool.lock().killed.insert(1, at);
            let (killed, shard) = (Gate::new(&pool, 1), first_shard(&bucket));
            tokio::select! {
                done = killed.objects.index.tend(&shard) => done.unwrap(),
                () = pool.death() => {}
            }
            let phase = gate
                .objects
                .index
                .state(&first_shard(&bucket))
                .await
                .unwrap()
                .state
                .phase;
            left += u64::from(phase != Phase::Open);
            // Nobody writes.
            gate.settle(20).await;
            gate.buckets.get("b").await.unwrap();
        });
    }
    assert!(left > 5, "{left}");
}

#[test]
fn many_who_end_the_same_split_leave_nothing_half_done() {
    for seed in 1..=200 {
        run(async {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (0..4).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            fill(&gates[0], &bucket, 0..20).await;
            let shard = first_shard(&bucket);
            pool.lock().killed.insert(3, 6 + seed % 12);
            tokio::select! {
                done = gates[3].objects.index.tend(&shard) => done.unwrap(),
                () = pool.death() => {}
            }
            pool.pass(Duration::from_secs(61));
            let tend = async |n: usize| {
                for _ in 0..3 {
                    // Each takes over from the others, wherever they are.
                    pool.pass(Duration::from_secs(61));
                    gates[n].objects.index.tend(&shard).await.unwrap();
                }
            };
            tokio::join!(tend(0), tend(1), tend(2));
            let last = Gate::new(&pool, 9);
            last.settle(20).await;
            let names = last.names(&bucket, listing(7)).await.unwrap();
            assert_eq!(names.len(), 20, "seed {seed}");
        });
    }
}

/// One copier stops at every point, another takes over and stops at every point, keys are written, and both go on.
#[test]
fn a_copier_that_was_overtaken_loses_nothing_of_what_was_written_since() {
    let points = (1..40).flat_map(|a| (1 + a % 3..40).step_by(3).map(move |b| (a, b)));
    for (first, second) in points {
        run(async {
            let pool = Fake::new(first * 64 + second);
            let gate = Gate::new(&pool, 0);
            let bucket = gate.make("b").await;
            let mut may = May::new();
            fill(&gate, &bucket, 0..18).await;
            pool.lock().held.extend([(1, first), (2, second)]);
            let shard = first_shard(&bucket);
            let tend = |n: u64| {
                // The second thinks that the first was left: its clock is ahead.
                let mut pool = pool.clone();
                pool.hand = Arc::default();
                *pool.hand.0.lock().unwrap() = Duration::from_secs(1_000_000 + 61 * (n - 1));
                let (gate, shard) = (Gate::new(&pool, n), shard.clone());
                io::task::spawn_local(async move { gate.objects.index.tend(&shard).await })
            };
            let rest = async || {
                for _ in 0..150 {
                    io::task::yield_now().await;
                }
            };
            let one = tend(1);
            rest().await;
            let two = tend(2);
            rest().await;
            for i in 8..18 {
                let (key, data) = (format!("k{i:02}"), data_of(100 + i));
                gate.put(&bucket, &key, &data, &any()).await.unwrap();
                may.insert(key, BTreeSet::from([Some(data)]));
            }
            pool.lock().held.remove(&1);
            one.await.unwrap().unwrap();
            pool.lock().held.remove(&2);
            two.await.unwrap().unwrap();
            gate.settle(18).await;
            for (key, held) in &may {
                let now = gate.read(&bucket, key).await.unwrap();
                assert!(held.contains(&now), "{first} {second} {key}: {now:?}");
            }
        });
    }
}

#[test]
fn a_copier_that_is_slow_is_not_overtaken() {
    run(async {
        let pool = Fake::new(1);
        let (gate, other) = (Gate::new(&pool, 0), Gate::new(&pool, 1));
        let bucket = gate.make("b").await;
        fill(&gate, &bucket, 0..120).await;
        let (shard, index) = (first_shard(&bucket), &other.objects.index);
        pool.lock().takes = Duration::from_secs(5);
        let copying = gate.objects.index.tend(&shard);
        let looking = async {
            let mut looks = 0;
            loop {
                let seen = index.state(&shard).await.unwrap();
                match seen.state.phase {
                    Phase::Copying(_) => looks += 1,
                    Phase::Open if looks > 0 => return looks,
                    _ => continue,
                }
                assert!(!index.was_left(&seen.state), "{looks}");
            }
        };
        let (copied, looks) = tokio::join!(copying, looking);
        copied.unwrap();
        assert!(looks > 12, "{looks}");
        assert_eq!(shards(&pool, &bucket), 2);
    });
}

#[test]
fn a_deletion_does_not_take_over_what_another_has_closed() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let index = &gate.objects.index;
        index.close(&bucket, 2).await.unwrap();
        // One that was left, goes on, and has not heard that it was taken back.
        assert!(matches!(index.close(&bucket, 1).await, Err(Error::Busy(_))));
        let phase = index.state(&first_shard(&bucket)).await.unwrap().state.phase;
        assert_eq!(phase, Phase::Closed { deletion: 2 });
        // Deletion 2 is not under way: who deletes the bucket opens what it closed, and may try again.
        assert!(matches!(gate.buckets.delete("b").await, Err(Error::Busy(_))));
        gate.put(&bucket, "k", &data_of(1), &any()).await.unwrap();
        assert_eq!(gate.buckets.delete("b").await, Err(Error::BucketNotEmpty));
        gate.objects
            .delete(&bucket, "k", Which::Current, &any())
            .await
            .unwrap();
        gate.buckets.delete("b").await.unwrap();
        gate.settle(0).await;
    });
}

#[test]
fn a_deletion_that_ends_in_vain_leaves_the_bucket_open() {
    let mut vain = 0;
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.make("b").await;
            // Its ACL changes while it is deleted.
            let (deleted, set) = tokio::join!(gate.buckets.delete("b"), async {
                let mut begun = false;
                loop {
                    let seen = gate.buckets.get("b").await?;
                    begun |= seen.deleting != 0;
                    if !begun {
                        continue;
                    }
                    match gate.buckets.set_public_read("b", &seen, true).await {
                        Err(Error::Conflict(_)) => {}
                        other => return other,
                    }
                }
            });
            match deleted {
                Ok(()) => assert_eq!(set, Err(Error::NoSuchBucket)),
                Err(e) => {
                    assert!(matches!(e, Error::Conflict(_)), "{e}");
                    gate.put(&bucket, "k", &data_of(1), &any()).await.unwrap();
                    vain += 1;
                }
            }
        });
    }
    assert!(vain > 0);
}

#[test]
fn a_stripe_that_is_being_written_is_not_left_behind() {
    for seed in 1..=20 {
        run(async {
            let pool = Fake::new(seed);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.make("b").await;
            let data = &gate.objects.data;
            let taken = data
                .take(
                    (&bucket, "k"),
                    (&mut Broken(false), None),
                    None,
                    u64::MAX,
                    &mut Blind,
                )
                .await;
            assert_eq!(taken.err(), Some(Error::Body("gone".into())));
            assert_eq!(
                data_objects(&pool),
                1,
                "it is written, or was not begun, when it is named as garbage"
            );
            // One that was not answered may come later.
            assert_eq!(gate.collect(900_000).await.removed, 0);
            pool.pass(Duration::from_secs(901));
            assert_eq!(gate.collect(900_000).await.removed, 1);
            assert_eq!(data_objects(&pool), 0);
        });
    }
}

/// A stripe, then a few bytes with much time in between.
struct Slow(Fake, u32);

impl Stream for Slow {
    type Item = std::result::Result<Bytes, String>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.1 += 1;
        Poll::Ready(match self.1 {
            1 => Some(Ok(Bytes::from(vec![1; STRIPE as usize]))),
            2..10 => {
                self.0.pass(Duration::from_secs(9 * 60));
                Some(Ok(Bytes::from_static(b"x")))
            }
            _ => None,
        })
    }
}

#[test]
fn a_slow_body_keeps_its_claim() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let mut body = Slow(pool.clone(), 0);
        let data = &gate.objects.data;
        let taken = data
            .take((&bucket, "k"), (&mut body, None), None, u64::MAX, &mut Blind)
            .await;
        assert_eq!(taken.map(|s| s.size).ok(), Some(STRIPE + 8));
    });
}

#[test]
fn a_body_has_the_length_that_was_announced() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        for length in [3, 5] {
            let mut body = Once(Some(Bytes::from_static(b"four")));
            let data = &gate.objects.data;
            let taken = data
                .take(
                    (&bucket, "k"),
                    (&mut body, None),
                    Some(length),
                    u64::MAX,
                    &mut Blind,
                )
                .await;
            assert!(matches!(taken.err(), Some(Error::Body(_))), "{length}");
        }
        // What is more is not taken in at all: there was room for a byte.
        let before = data_objects(&pool);
        let taken = gate
            .objects
            .data
            .take(
                (&bucket, "k"),
                (&mut Broken(false), None),
                Some(1),
                u64::MAX,
                &mut Blind,
            )
            .await;
        assert!(matches!(taken.err(), Some(Error::Body(e)) if e.starts_with("more")));
        assert_eq!(data_objects(&pool), before);
        gate.settle(0).await;
    });
}

#[test]
fn who_finds_no_room_is_told_so() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        for _ in 0..ROOM / STRIPE / 2 {
            let (data, bucket) = (gate.objects.data.clone(), bucket.clone());
            drop(io::task::spawn_local(async move {
                let to = (bucket.as_str(), "k");
                drop(
                    data.take(to, (&mut Never, None), None, u64::MAX, &mut Blind)
                        .await,
                );
            }));
        }
        io::task::yield_now().await;
        let late = gate.put(&bucket, "k", &data_of(1), &any()).await;
        assert!(matches!(late, Err(Error::Busy(_))), "{late:?}");
    });
}

#[test]
fn an_index_stays_while_garbage_is_in_it() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let mut body = Once(Some(data_of(1)));
        let data = &gate.objects.data;
        let stored = data
            .take((&bucket, "k"), (&mut body, None), None, u64::MAX, &mut Blind)
            .await
            .unwrap();
        gate.buckets.delete("b").await.unwrap();
        pool.pass(Duration::from_secs(800));
        // Its writer gives up long after the bucket was deleted.
        data.abandon(stored.claim).await;
        pool.pass(Duration::from_secs(101));
        assert_eq!(gate.collect(900_000).await, Round::default());
        assert!(pool.lock().objects.contains_key(&root_name(&bucket)));
        pool.pass(Duration::from_secs(800));
        let round = gate.collect(900_000).await;
        assert_eq!((round.removed, round.buried), (1, 1));
        gate.settle(0).await;
    });
}

#[test]
fn a_row_that_cannot_be_read_does_not_keep_others() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let (other, bucket) = (gate.make("a").await, gate.make("b").await);
        for bucket in [&other, &bucket] {
            for i in 0..40 {
                gate.put(bucket, &format!("k{i}"), &data_of(i), &any())
                    .await
                    .unwrap();
                gate.objects
                    .delete(bucket, &format!("k{i}"), Which::Current, &any())
                    .await
                    .unwrap();
            }
        }
        // A manifest that is damaged, and rows that are no records.
        let tag = Tag([0; 16]);
        let garbage = Garbage {
            since: 0,
            data: Data::Manifest(tag, Place::STANDARD),
            size: None,
        };
        {
            let mut world = pool.lock();
            world.objects.entry(format!("{tag}.m")).or_default().data = Bytes::from_static(b"bad");
            let omap = &mut world.objects.get_mut(&first_shard(&other)).unwrap().omap;
            omap.insert(garbage_row(tag), garbage.to_bytes());
            omap.insert(garbage_row(Tag([1; 16])), Bytes::from_static(b"bad"));
            omap.insert(
                crate::record::intent_row(Tag([1; 16])),
                Bytes::from_static(b"bad"),
            );
            let buckets = &mut world.objects.get_mut(BUCKETS).unwrap().omap;
            buckets.insert(Bytes::from_static(b"b0"), Bytes::from_static(b"bad"));
        }
        assert_eq!(gate.collect(0).await.removed, 80);
        assert_eq!(data_objects(&pool), 1);
    });
}

#[test]
fn a_shard_that_fails_does_not_keep_those_after_it() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        fill(&gate, &bucket, 0..40).await;
        gate.tend().await;
        assert!(shards(&pool, &bucket) > 1);
        {
            let mut world = pool.lock();
            let omap = &mut world.objects.get_mut(&first_shard(&bucket)).unwrap().omap;
            // More than a walk passes by.
            for n in 0..100 {
                omap.insert(garbage_row(Tag([n; 16])), Bytes::from_static(b"bad"));
            }
        }
        gate.objects
            .delete(&bucket, "k39", Which::Current, &any())
            .await
            .unwrap();
        assert_eq!(gate.collect(0).await.removed, 1);
    });
}

#[test]
fn two_who_complete_the_same_upload_hear_the_same() {
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let (gate, other) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            let bucket = gate.make("b").await;
            let attributes = Attributes::default();
            let id = gate
                .objects
                .begin_upload(&bucket, "k", attributes, None, Default::default())
                .await
                .unwrap();
            let upload = (bucket.as_str(), "k", id.as_str());
            let named = [part(&gate, upload, 1, 10).await.unwrap()];
            let none = gate.objects.parts(upload, 0, 0).await.unwrap();
            assert!(none.parts.is_empty() && !none.more);
            let none = gate.objects.uploads(&bucket, "", None, 0).await.unwrap();
            assert!(none.uploads.is_empty() && !none.more);
            let nothing = any();
            let (one, two) = tokio::join!(
                gate.objects.complete(upload, &named, &nothing, whole),
                other.objects.complete(upload, &named, &nothing, whole)
            );
            assert_eq!(one.unwrap(), two.unwrap(), "seed {seed}");
            gate.settle(1).await;
        });
    }
}

/// A gateway that remembers settings beside one that changes them: it sees those of the moment, never of two.
#[test]
fn settings_are_seen_as_they_are() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let (one, two) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            one.make("b").await;
            let changing = async {
                for n in 0..20u32 {
                    let seen = two.buckets.known("b").await.unwrap();
                    let mut settings = seen.settings.of.clone();
                    settings.cors = vec![CorsRule::default(); (n % 3) as usize];
                    two.buckets.set_settings("b", &seen, &settings).await.unwrap();
                    // Who saw the bucket before changes nothing any more.
                    let late = two.buckets.set_settings("b", &seen, &settings).await;
                    assert!(matches!(late, Err(Error::Conflict(_))), "{late:?}");
                    let told = one.buckets.known("b").await.unwrap();
                    assert_eq!(told.settings.of.cors.len(), (n % 3) as usize);
                }
            };
            let looking = async {
                for _ in 0..60 {
                    let known = one.buckets.known("b").await.unwrap();
                    assert_eq!(known.bucket.settings == 0, known.settings.of.cors.is_empty());
                }
            };
            tokio::join!(changing, looking);
            two.buckets.delete("b").await.unwrap();
            let rows = pool.lock().objects["buckets"].omap.clone();
            assert!(!rows.keys().any(|row| row.starts_with(b"s")), "{rows:?}");
        });
    }
}

#[test]
fn a_copier_that_was_overtaken_takes_no_notes_away() {
    for seed in 1..=60 {
        run(async {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (0..4).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            let keys: Vec<String> = (0..30).map(|i| format!("k{i:02}")).collect();
            let mut may = May::new();
            for key in &keys {
                let data = data_of(pool.random.next());
                let condition = Terms::default();
                gates[0].put(&bucket, key, &data, &condition).await.unwrap();
                may.insert(key.clone(), BTreeSet::from([Some(data)]));
            }
            let shard = first_shard(&bucket);
            // Time goes on by itself, so that each copier seems to have left the work to the next.
            let copies = async |gate: &Gate| {
                for _ in 0..6 {
                    let _ = gate.objects.index.tend(&shard).await;
                    io::task::yield_now().await;
                }
            };
            let time = async {
                for _ in 0..60 {
                    pool.pass(Duration::from_secs(20));
                    io::task::yield_now().await;
                }
            };
            let writes = async {
                for _ in 0..40 {
                    let key = &keys[15 + pool.random.below(15) as usize];
                    let data = data_of(pool.random.next());
                    let condition = Terms::default();
                    if gates[3].put(&bucket, key, &data, &condition).await.is_ok() {
                        may.insert(key.clone(), BTreeSet::from([Some(data)]));
                    }
                }
            };
            tokio::join!(copies(&gates[1]), copies(&gates[2]), time, writes);
            check_all(&Gate::new(&pool, 9), &bucket, &may).await;
        });
    }
}
