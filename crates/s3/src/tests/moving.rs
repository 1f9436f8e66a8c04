//! Objects that are moved to another storage class: they are there, whole, in the one pool or the other, whatever fails meanwhile; and nothing
//! of them stays behind.

use super::*;
use crate::classes::{Classes, Opener};
use crate::data::Stored;
use crate::lifecycle::{DAY, Move, OlderMove, Rule};
use crate::record::{Entry, Part, Place, Upload};
use crate::seal::{CHUNK, How, Key};
use crate::settings::Settings;
use std::sync::Arc;

const COLD: &str = "COLD";
const TO: (&str, Place) = (COLD, Place(1));

impl Gate {
    /// A bucket, and a class with a pool of its own.
    async fn with_class(&self) -> String {
        let bucket = self.make("b").await;
        accounts::ensure(&self.pool, CLASSES).await.unwrap();
        self.objects.data.classes().add(COLD, "cold").await.unwrap();
        bucket
    }

    async fn move_now(&self, bucket: &str, key: &str) -> Result<bool> {
        let seen = self.objects.entry(bucket, key).await?;
        self.objects.move_current((bucket, key), &seen, TO).await
    }

    /// Puts an object of two parts; the first has several stripes.
    async fn put_parts(&self, bucket: &str, key: &str, sealed: Option<&Key>) -> Vec<u8> {
        let parts = [STRIPE * 2 + 3 * CHUNK + 5, 100].map(|n| vec![n as u8; n as usize]);
        let (objects, clock) = (&self.objects, &self.objects.clock);
        let how = sealed.map(|object| {
            let master = Key::new(&[9; 32]).unwrap();
            let how = How::Customer(String::new());
            master.wrap(object, how, (bucket, key), clock).unwrap()
        });
        let attributes = Attributes::default();
        let id = objects
            .begin_upload(bucket, key, attributes, None, (Default::default(), how))
            .await
            .unwrap();
        let mut named = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let part = Bytes::from(part.clone());
            let stored = taken(&objects.data, (bucket, key), part, sealed.cloned()).await;
            let (number, etag) = (n as u32 + 1, n.to_string());
            objects
                .put_part((bucket, key, &id), number, stored, etag.clone(), None)
                .await
                .unwrap();
            named.push(Named {
                number,
                etag,
                checksum: None,
            });
        }
        objects
            .complete((bucket, key, &id), &named, &Terms::default(), whole)
            .await
            .unwrap();
        parts.concat()
    }
}

async fn read_with(gate: &Gate, entry: &Entry, (from, to): (u64, u64), key: Option<&Key>) -> Vec<u8> {
    let reader = gate.objects.data.reader(entry, (from, to), key.cloned());
    let (mut reader, mut all) = (reader.await.unwrap(), Vec::new());
    while let Some(chunk) = reader.next().await.unwrap() {
        all.extend_from_slice(&chunk);
    }
    all
}

async fn taken(store: &DataStore<Fake>, to: (&str, &str), data: Bytes, key: Option<Key>) -> Stored {
    let (mut body, mut blind) = (Once(Some(data)), Blind);
    let taken = store.take(to, (&mut body, key), None, u64::MAX, &mut blind);
    taken.await.unwrap()
}

fn whole(_: &Upload, _: &[(&Named, &Part)]) -> Result<Whole> {
    Ok(Whole {
        etag: "w".into(),
        checksum: None,
    })
}

/// How many objects each pool has for data.
fn held(pool: &Fake) -> (usize, usize) {
    let world = pool.lock();
    let cold = world.objects.keys().filter(|n| n.starts_with("cold/")).count();
    let rows = [BUCKETS, COUNTS, CLASSES];
    let others = world
        .objects
        .keys()
        .filter(|n| !n.starts_with("cold/") && !n.starts_with("index.") && !rows.contains(&n.as_str()));
    (others.count(), cold)
}

#[test]
fn what_is_moved_is_the_same_elsewhere() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.with_class().await;
        let small = data_of(1);
        gate.put(&bucket, "small", &small, &Terms::default())
            .await
            .unwrap();
        gate.put(&bucket, "none", &Bytes::new(), &Terms::default())
            .await
            .unwrap();
        let parts = gate.put_parts(&bucket, "parts", None).await;
        let key = Key::random(&gate.objects.clock);
        let sealed = gate.put_parts(&bucket, "sealed", Some(&key)).await;
        let was = gate.objects.entry(&bucket, "sealed").await.unwrap();
        for name in ["small", "none", "parts", "sealed"] {
            assert_eq!(gate.move_now(&bucket, name).await, Ok(true), "{name}");
            let entry = gate.objects.entry(&bucket, name).await.unwrap();
            assert_eq!(entry.attributes.class, COLD, "{name}");
        }
        // Who reads what was there has hours for that.
        pool.pass(Duration::from_secs(5 * 3600));
        gate.collect(0).await;
        assert_eq!(held(&pool), (11, 11));
        gate.settle(1 + 5 + 5).await;
        assert_eq!(held(&pool), (0, 11));
        assert_eq!(gate.read(&bucket, "small").await, Ok(Some(small)));
        assert_eq!(gate.read(&bucket, "none").await, Ok(Some(Bytes::new())));
        let all = gate.read(&bucket, "parts").await.unwrap().unwrap();
        assert!(all == parts);
        let now = gate.objects.entry(&bucket, "sealed").await.unwrap();
        assert_eq!((now.modified, &now.etag, now.parts), (was.modified, &was.etag, 2));
        for (from, to) in [
            (0, now.size),
            (STRIPE - 1, STRIPE + 1),
            (2 * STRIPE + CHUNK - 1, now.size - 50),
            (now.size - 1, now.size),
        ] {
            let got = read_with(&gate, &now, (from, to), Some(&key)).await;
            assert!(got == sealed[from as usize..to as usize], "{from} {to}");
        }
        // Once more, to a third pool, and back out of it: what it was sealed under goes with it.
        gate.objects.data.classes().add("ICE", "ice").await.unwrap();
        let ice = ("ICE", Place(2));
        for name in ["small", "sealed"] {
            let seen = gate.objects.entry(&bucket, name).await.unwrap();
            let moved = gate.objects.move_current((&bucket, name), &seen, ice).await;
            assert_eq!(moved, Ok(true));
        }
        gate.settle(11).await;
        let now = gate.objects.entry(&bucket, "sealed").await.unwrap();
        assert!(read_with(&gate, &now, (0, now.size), Some(&key)).await == sealed);
        assert_eq!(gate.check().await.problems, Vec::<String>::new());
        for name in ["small", "none", "parts", "sealed"] {
            let (which, terms) = (Which::Current, Terms::default());
            gate.objects.delete(&bucket, name, which, &terms).await.unwrap();
        }
        gate.settle(0).await;
    });
}

#[test]
fn a_sealed_object_of_one_stretch_is_read_after_it_was_moved() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.with_class().await;
        let key = Key::random(&gate.objects.clock);
        let how = How::Customer(String::new());
        let master = Key::new(&[9; 32]).unwrap();
        let sealed = master
            .wrap(&key, how, (&bucket, "k"), &gate.objects.clock)
            .unwrap();
        let data = Bytes::from(vec![3; (STRIPE + CHUNK + 7) as usize]);
        let of = (bucket.as_str(), "k");
        let new = New {
            stored: taken(&gate.objects.data, of, data.clone(), Some(key.clone())).await,
            etag: String::new(),
            attributes: Attributes::default(),
            checksum: None,
            lock: Default::default(),
            sealed: Some(sealed),
        };
        let terms = Terms::default();
        gate.objects.put(&bucket, "k", new, &terms).await.unwrap();
        assert_eq!(gate.move_now(&bucket, "k").await, Ok(true));
        gate.settle(3).await;
        let entry = gate.objects.entry(&bucket, "k").await.unwrap();
        assert!(read_with(&gate, &entry, (0, entry.size), Some(&key)).await == data);
        assert_eq!(gate.check().await.problems, Vec::<String>::new());
    });
}

/// A gateway that is killed at each of the operations of a move.
#[test]
fn a_move_may_be_cut_off_anywhere() {
    let (mut before, mut after) = (0, 0);
    for n in 1..200 {
        let over = run(async {
            let pool = Fake::new(n);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.with_class().await;
            let data = gate.put_parts(&bucket, "k", None).await;
            let mover = Gate::new(&pool, 2);
            pool.lock().killed.insert(2, n);
            let over = tokio::select! {
                moved = mover.move_now(&bucket, "k") => moved.unwrap(),
                () = pool.death() => false,
            };
            let class = gate.objects.entry(&bucket, "k").await.unwrap().attributes.class;
            match class.is_empty() {
                true => before += 1,
                false => after += 1,
            }
            assert!(gate.read(&bucket, "k").await.unwrap().unwrap() == data, "{n}");
            gate.settle(5).await;
            assert_eq!(held(&pool), if class.is_empty() { (5, 0) } else { (0, 5) }, "{n}");
            assert!(gate.read(&bucket, "k").await.unwrap().unwrap() == data, "{n}");
            over
        });
        if over {
            // All points were tried.
            assert!(before > 10 && after > 0, "{before} {after}");
            return;
        }
    }
    panic!("a move has no end");
}

#[test]
fn what_is_put_meanwhile_is_not_touched() {
    for n in 1..12 {
        run(async {
            let pool = Fake::new(n);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.with_class().await;
            gate.put(&bucket, "k", &data_of(1), &Terms::default())
                .await
                .unwrap();
            let mover = Gate::new(&pool, 2);
            let seen = mover.objects.entry(&bucket, "k").await.unwrap();
            pool.lock().held.insert(2, n);
            let others = async {
                let new = data_of(2);
                gate.put(&bucket, "k", &new, &Terms::default()).await.unwrap();
                pool.lock().held.remove(&2);
                new
            };
            let moves = mover.objects.move_current((&bucket, "k"), &seen, TO);
            let (moved, new) = tokio::join!(moves, others);
            let entry = gate.objects.entry(&bucket, "k").await.unwrap();
            // Either it was moved before, or it is left alone.
            assert_eq!(entry.attributes.class, "", "{n} {moved:?}");
            assert_eq!(gate.read(&bucket, "k").await, Ok(Some(new)));
            gate.settle(1).await;
            assert_eq!(held(&pool), (1, 0));
        });
    }
}

#[test]
fn two_who_move_the_same_leave_one_copy() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.with_class().await;
            let data = gate.put_parts(&bucket, "k", None).await;
            pool.lock().fails = [0, 30][seed as usize % 2];
            let (one, two) = (Gate::new(&pool, 2), Gate::new(&pool, 3));
            let (a, b) = tokio::join!(one.move_now(&bucket, "k"), two.move_now(&bucket, "k"));
            pool.lock().fails = 0;
            assert!(!(a == Ok(true) && b == Ok(true)), "{seed}");
            assert!(gate.read(&bucket, "k").await.unwrap().unwrap() == data, "{seed}");
            gate.settle(5).await;
            assert!(gate.read(&bucket, "k").await.unwrap().unwrap() == data, "{seed}");
        });
    }
}

fn rule(moves: Vec<Move>, older_moves: Vec<OlderMove>) -> Rule {
    Rule {
        id: "r".into(),
        enabled: true,
        prefix: Some("t".into()),
        moves,
        older_moves,
        ..Rule::default()
    }
}

fn after_days(days: u32) -> Vec<Move> {
    vec![Move {
        days: Some(days),
        date: None,
        class: COLD.into(),
    }]
}

async fn set(gate: &Gate, lifecycle: Vec<Rule>, versioning: Versioning) {
    let known = gate.buckets.known("b").await.unwrap();
    let settings = Settings {
        lifecycle,
        versioning,
        ..Settings::default()
    };
    gate.buckets.set_settings("b", &known, &settings).await.unwrap();
}

#[test]
fn rules_move_what_is_due_once() {
    for seed in 1..=20 {
        run(async {
            let pool = Fake::new(seed);
            let gate = Gate::new(&pool, 1);
            let bucket = gate.with_class().await;
            set(&gate, vec![rule(after_days(1), Vec::new())], Versioning::Off).await;
            for n in 0..40 {
                let key = format!("{}{n:02}", if n % 2 == 0 { "t" } else { "u" });
                gate.put(&bucket, &key, &data_of(n), &Terms::default())
                    .await
                    .unwrap();
                gate.tend().await;
            }
            let day = Duration::from_millis(DAY);
            gate.end_terms().await;
            assert_eq!(held(&pool), (40, 0));
            pool.pass(day * 2);
            pool.lock().fails = [0, 25][seed as usize % 2];
            let mut moved = 0;
            for _ in 0..30 {
                moved += gate.end_terms().await.moved;
                moved += Gate::new(&pool, 2).end_terms().await.moved;
                pool.pass(day);
            }
            pool.lock().fails = 0;
            for _ in 0..10 {
                moved += gate.end_terms().await.moved;
                pool.pass(day);
            }
            gate.settle(40).await;
            assert_eq!(held(&pool), (20, 20));
            assert!(moved == 20 || (moved <= 20 && seed % 2 == 1), "{moved}");
            for n in 0..40 {
                let (key, class) = if n % 2 == 0 { ("t", COLD) } else { ("u", "") };
                let key = format!("{key}{n:02}");
                let entry = gate.objects.entry(&bucket, &key).await.unwrap();
                assert_eq!(entry.attributes.class, class);
                assert_eq!(gate.read(&bucket, &key).await, Ok(Some(data_of(n))));
            }
        });
    }
}

#[test]
fn versions_that_others_have_followed_move_by_themselves() {
    run(async {
        let pool = Fake::new(3);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.with_class().await;
        let older = OlderMove {
            days: 1,
            keep: 1,
            class: COLD.into(),
        };
        set(&gate, vec![rule(Vec::new(), vec![older])], Versioning::Enabled).await;
        for n in 0..4 {
            gate.put_version(&bucket, "t", &data_of(n), Versioning::Enabled)
                .await
                .unwrap();
        }
        // A lock holds a version, and not where its data are.
        let hold = gate.objects.amend(&bucket, "t", Which::Current, |e| {
            e.lock.hold = true;
            Ok(())
        });
        hold.await.unwrap();
        gate.put_version(&bucket, "t", &data_of(4), Versioning::Enabled)
            .await
            .unwrap();
        pool.pass(Duration::from_millis(3 * DAY));
        for _ in 0..10 {
            gate.end_terms().await;
        }
        gate.settle(5).await;
        // The current one and the newest of the others stay.
        assert_eq!(held(&pool), (2, 3));
        let seen = gate.objects.entry(&bucket, "t").await.unwrap();
        assert_eq!(gate.read(&bucket, "t").await, Ok(Some(data_of(4))));
        let all = rule(after_days(0), Vec::new());
        set(&gate, vec![all], Versioning::Enabled).await;
        for _ in 0..10 {
            gate.end_terms().await;
        }
        gate.settle(5).await;
        assert_eq!(held(&pool), (1, 4));
        let now = gate.objects.entry(&bucket, "t").await.unwrap();
        assert_eq!((now.version(), now.modified), (seen.version(), seen.modified));
        assert_eq!(gate.check().await.problems, Vec::<String>::new());
    });
}

#[test]
fn what_is_withdrawn_takes_nothing_more() {
    run(async {
        let pool = Fake::new(4);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.with_class().await;
        for key in ["t1", "t2"] {
            gate.put(&bucket, key, &data_of(1), &Terms::default())
                .await
                .unwrap();
        }
        assert_eq!(gate.move_now(&bucket, "t1").await, Ok(true));
        gate.objects.data.classes().withdraw(COLD).await.unwrap();
        set(&gate, vec![rule(after_days(0), Vec::new())], Versioning::Off).await;
        pool.pass(Duration::from_millis(2 * DAY));
        assert_eq!(gate.end_terms().await.moved, 0);
        gate.settle(2).await;
        assert_eq!(held(&pool), (1, 1));
        assert_eq!(gate.read(&bucket, "t1").await, Ok(Some(data_of(1))));
    });
}

#[test]
fn what_is_put_into_a_class_is_in_its_pool_and_is_collected_there() {
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.with_class().await;
        let data = gate.objects.data.at(Place(1));
        // Its writer is gone.
        drop(taken(&data, (&bucket, "k"), data_of(1), None).await);
        assert_eq!(held(&pool), (0, 1));
        gate.settle(0).await;
        let attributes = Attributes {
            class: COLD.into(),
            ..Attributes::default()
        };
        let begun = gate
            .objects
            .begin_upload(&bucket, "k", attributes, None, Default::default());
        let id = begun.await.unwrap();
        let upload = (bucket.as_str(), "k", id.as_str());
        let mut named = Vec::new();
        for number in 1..=2 {
            let size = if number == 1 {
                crate::multipart::PART_MIN
            } else {
                9
            };
            let part = Bytes::from(vec![number as u8; size as usize]);
            let stored = taken(&data, (&bucket, "k"), part, None).await;
            let put = gate.objects.put_part(upload, number, stored, "e".into(), None);
            put.await.unwrap();
            named.push(Named {
                number,
                etag: "e".into(),
                checksum: None,
            });
        }
        let terms = Terms::default();
        let done = gate.objects.complete(upload, &named, &terms, whole);
        assert_eq!(done.await.unwrap().attributes.class, COLD);
        // Two stripes, one, and the manifest.
        gate.settle(4).await;
        assert_eq!(held(&pool), (0, 4));
        let (which, terms) = (Which::Current, Terms::default());
        gate.objects.delete(&bucket, "k", which, &terms).await.unwrap();
        gate.settle(0).await;
    });
}

/// A full pool lets writes wait.
#[test]
fn a_pool_that_takes_nothing_keeps_nothing_else_waiting() {
    run(async {
        let pool = Fake::new(6);
        let mut gate = Gate::new(&pool, 1);
        let mut cold = gate.pool.clone();
        (cold.gateway, cold.prefix) = (9, "cold/".into());
        let open: Opener<Fake> = Arc::new(move |_| {
            let cold = cold.clone();
            Box::pin(async { Ok(cold) })
        });
        let (index, clock) = (gate.objects.index.clone(), gate.objects.clock.clone());
        let classes = Classes::new(gate.pool.clone(), gate.pool.clone(), open, clock.clone());
        gate.objects.data = DataStore::new(classes, index, clock);
        let bucket = gate.with_class().await;
        let ends = Rule {
            id: "x".into(),
            enabled: true,
            prefix: Some("x".into()),
            days: Some(1),
            ..Rule::default()
        };
        let rules = vec![rule(after_days(1), Vec::new()), ends];
        set(&gate, rules, Versioning::Off).await;
        for key in ["t1", "t2", "t3", "x"] {
            let (data, terms) = (data_of(1), Terms::default());
            gate.put(&bucket, key, &data, &terms).await.unwrap();
        }
        pool.pass(Duration::from_millis(2 * DAY));
        pool.lock().held.insert(9, 1);
        let done = gate.end_terms().await;
        assert_eq!((done.moved, done.expired), (0, 1));
        pool.lock().held.remove(&9);
        assert_eq!(gate.end_terms().await.moved, 3);
        gate.settle(3).await;
        assert_eq!(held(&pool), (0, 3));
    });
}
