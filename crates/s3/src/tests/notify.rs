//! What owners are told of changes: each that came to pass, once or more, and nothing else.

use super::*;
use crate::courier::{Courier, Cursor, KEPT_FOR, Left, Outcome};
use crate::endpoints::{Sender, Sending};
use crate::meters::Meters;
use crate::notify::{Asker, How, Notice, Notification};
use crate::objects::Etags;
use crate::topics::{Done as Settled, LEASE, ROWS_MAX, TOPICS, Taken, Topic, Topics};
use serde_json::Value;
use std::sync::{Arc, Mutex};

type Told = Arc<Mutex<Vec<Value>>>;

/// What takes all but bodies that have `bad` in them, and remembers what it was asked to take.
fn inbox(told: &Told, bad: &'static str) -> Sender {
    let told = told.clone();
    Arc::new(move |_: &str, _: &str, body: String| {
        let told = told.clone();
        let sending: Sending = Box::pin(async move {
            io::task::yield_now().await;
            if !bad.is_empty() && body.contains(bad) {
                return Err("it does not take that".into());
            }
            let said: Value = serde_json::from_str(&body).unwrap();
            told.lock().unwrap().push(said["Records"][0].clone());
            Ok(())
        });
        sending
    })
}

fn sizes(told: &Told) -> BTreeSet<u64> {
    let all = told.lock().unwrap();
    all.iter()
        .filter_map(|r| r["s3"]["object"]["size"].as_u64())
        .collect()
}

fn names(told: &Told) -> Vec<String> {
    let all = told.lock().unwrap();
    all.iter()
        .map(|r| r["eventName"].as_str().unwrap().to_string())
        .collect()
}

fn rule() -> Notification {
    let events = [
        "ObjectCreated",
        "ObjectRemoved",
        "LifecycleExpiration",
        "ObjectTagging",
    ];
    Notification {
        id: "i".into(),
        topic: "t".into(),
        events: events.map(|e| format!("s3:{e}:*")).to_vec(),
        ..Notification::default()
    }
}

impl Gate {
    fn topics(&self) -> Topics<Fake> {
        Topics::new(self.pool.clone(), self.objects.clock.clone())
    }

    /// The same, that tells of a change of this key.
    fn telling(&self, key: &str, how: How) -> Self {
        let notice = Notice::of(&[rule()], ("b", "u", key), how, &Asker::default());
        Self {
            objects: self.objects.telling(notice),
            ..self.clone()
        }
    }

    async fn topic(&self) -> Topic {
        self.topics().create("u", "t", "http://h/", "").await.unwrap()
    }

    async fn gather(&self) {
        let told = self.objects.index.told();
        for shard in told.shards.take() {
            // What fails is found by a collector.
            while let Ok(Left::More) = self.gatherer().own(&shard).await {}
        }
        for shard in told.left.take() {
            while let Ok(Left::More) = self.gatherer().left(&shard).await {}
        }
    }

    /// All that waits.
    async fn tell(&self, topic: &Topic, sender: Sender) -> Outcome {
        let courier = Courier::new(self.gatherer(), sender);
        courier.tell(topic, &mut Cursor::default()).await.unwrap()
    }
}

/// Sizes of what was put, and of what was refused.
#[derive(Default)]
struct Put {
    done: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

async fn write(gate: Gate, bucket: String, from: u64, put: &mut Put) {
    for n in from..from + 30 {
        let key = format!("k{:02}", n % 50);
        let teller = gate.telling(&key, How::Put);
        let data = |n: u64| Bytes::from(vec![0; n as usize]);
        if teller
            .put(&bucket, &key, &data(n), &Terms::default())
            .await
            .is_ok()
        {
            put.done.insert(n);
        }
        let none = Condition {
            matches: None,
            none_match: Some(Etags::Any),
        };
        let new = Terms {
            condition: none,
            ..Terms::default()
        };
        match teller.put(&bucket, &key, &data(5000 + n), &new).await {
            Ok(()) => drop(put.done.insert(5000 + n)),
            Err(Error::Precondition) => drop(put.refused.insert(5000 + n)),
            Err(_) => {}
        }
        if n % 10 == 0 {
            gate.tend().await;
        }
    }
}

#[test]
fn what_came_to_pass_is_told_whoever_is_killed() {
    let refused = std::cell::Cell::new(0);
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let first = Gate::new(&pool, 0);
            let (bucket, topic) = (first.make("b").await, first.topic().await);
            let (told, gates) = (Told::default(), [Gate::new(&pool, 1), Gate::new(&pool, 2)]);
            let (mut a, mut b) = (Put::default(), Put::default());
            {
                let mut world = pool.lock();
                world.fails = 15;
                world.killed.insert(1, 40 + seed * 7);
            }
            tokio::select! {
                () = pool.death() => {}
                () = async {
                    write(gates[0].clone(), bucket.clone(), 100, &mut a).await;
                    let courier = Courier::new(gates[0].gatherer(), inbox(&told, ""));
                    gates[0].gather().await;
                    let _ = courier.tell(&topic, &mut Cursor::default()).await;
                } => {}
            }
            pool.lock().killed.clear();
            let courier = Courier::new(gates[1].gatherer(), inbox(&told, ""));
            tokio::join!(write(gates[1].clone(), bucket.clone(), 200, &mut b), async {
                for _ in 0..10 {
                    gates[1].gather().await;
                    let _ = courier.tell(&topic, &mut Cursor::default()).await;
                    first.collect(900_000).await;
                }
            });
            pool.lock().fails = 0;
            pool.pass(Duration::from_secs(60));
            let last = Gate::new(&pool, 9);
            last.collect(900_000).await;
            last.gather().await;
            assert_eq!(last.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
            let told = sizes(&told);
            for put in [&a, &b] {
                assert!(put.done.is_subset(&told), "{:?}", put.done.difference(&told));
                assert!(put.refused.is_disjoint(&told));
                refused.set(refused.get() + put.refused.len());
            }
            // Nothing is left, and the count fits.
            assert_eq!(last.topics().queue(&topic.id).await.unwrap().rows, 0);
            let world = pool.lock();
            let rows = world
                .objects
                .iter()
                .filter(|(name, _)| name.starts_with("index.") || name.starts_with("topic."));
            let events = rows
                .flat_map(|(_, o)| o.omap.keys())
                .filter(|k| matches!(k[0], b'n') || k.len() == 35);
            assert_eq!(events.count(), 0);
        });
    }
    assert!(refused.get() > 500, "{}", refused.get());
}

#[test]
fn what_is_told_costs_no_operation_more_where_it_is_made() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let cost = async |gate: &Gate, key: &str| {
            pool.lock().killed.insert(1, 1000);
            gate.put(&bucket, key, &data_of(1), &Terms::default())
                .await
                .unwrap();
            1000 - pool.lock().killed[&1]
        };
        // The index is known then.
        cost(&gate, "a").await;
        let plain = cost(&gate, "b").await;
        assert_eq!(cost(&gate.telling("c", How::Put), "c").await, plain);
        assert_eq!(gate.objects.index.told().shards.take().len(), 1);
    });
}

#[test]
fn changes_are_told_by_their_names() {
    run(async {
        let pool = Fake::new(2);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        let terms = |versioning| Terms {
            versioning,
            ..Terms::default()
        };
        let (off, on) = (terms(Versioning::Off), terms(Versioning::Enabled));
        let of = |how| gate.telling("k", how).objects;
        gate.telling("k", How::Post)
            .put(&bucket, "k", &data_of(1), &off)
            .await
            .unwrap();
        of(How::Tag)
            .amend(&bucket, "k", Which::Current, |_| Ok(()))
            .await
            .unwrap();
        of(How::Delete)
            .delete(&bucket, "k", Which::Current, &off)
            .await
            .unwrap();
        // Nothing is there any more.
        of(How::Delete)
            .delete(&bucket, "k", Which::Current, &off)
            .await
            .unwrap();
        gate.telling("k", How::Copy)
            .put(&bucket, "k", &data_of(1), &on)
            .await
            .unwrap();
        let made = of(How::Delete)
            .delete(&bucket, "k", Which::Current, &on)
            .await
            .unwrap();
        let id = Which::Of(made.version.unwrap().order);
        of(How::Delete).delete(&bucket, "k", id, &on).await.unwrap();
        let entry = gate.objects.entry(&bucket, "k").await.unwrap();
        of(How::Expire)
            .delete_seen(&bucket, "k", &entry, Versioning::Enabled)
            .await
            .unwrap();
        gate.gather().await;
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        // Told four at a time.
        let mut all = told.lock().unwrap().clone();
        all.sort_by_key(|r| r["s3"]["object"]["sequencer"].as_str().unwrap().to_string());
        *told.lock().unwrap() = all;
        let want = [
            "ObjectCreated:Post",
            "ObjectTagging:Put",
            "ObjectRemoved:Delete",
            "ObjectCreated:Copy",
            "ObjectRemoved:DeleteMarkerCreated",
            "ObjectRemoved:Delete",
            "LifecycleExpiration:DeleteMarkerCreated",
        ];
        assert_eq!(names(&told), want);
        let versions: Vec<bool> = told
            .lock()
            .unwrap()
            .iter()
            .map(|r| r["s3"]["object"]["versionId"].is_string())
            .collect();
        assert_eq!(versions, [false, false, false, true, true, true, true]);
    });
}

#[test]
fn what_is_not_taken_holds_nothing_up_and_goes_in_the_end() {
    run(async {
        let pool = Fake::new(3);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        for n in 0..30 {
            let key = if n % 10 == 0 {
                format!("bad{n}")
            } else {
                format!("k{n}")
            };
            let teller = gate.telling(&key, How::Put);
            teller
                .put(&bucket, &key, &data_of(n), &Terms::default())
                .await
                .unwrap();
        }
        gate.gather().await;
        // Nobody is there: it is not asked for long, and the next turn goes on behind.
        let (down, mut cursor) = (
            Courier::new(gate.gatherer(), inbox(&told, "Records")),
            Cursor::default(),
        );
        assert!(matches!(
            down.tell(&topic, &mut cursor).await,
            Ok(Outcome::Failed(_, false))
        ));
        assert!(!cursor.after.is_empty() && told.lock().unwrap().is_empty());
        assert_eq!(gate.topics().queue(&topic.id).await.unwrap().rows, 30);
        let some = Courier::new(gate.gatherer(), inbox(&told, "bad"));
        for _ in 0..3 {
            assert!(matches!(
                some.tell(&topic, &mut cursor).await,
                Ok(Outcome::Failed(..))
            ));
        }
        assert_eq!(told.lock().unwrap().len(), 27);
        assert_eq!(gate.topics().queue(&topic.id).await.unwrap().rows, 3);
        pool.pass(Duration::from_millis(KEPT_FOR + 1));
        assert_eq!(gate.tell(&topic, inbox(&told, "bad")).await, Outcome::Idle);
        let queue = gate.topics().queue(&topic.id).await.unwrap();
        assert_eq!((queue.rows, queue.old, told.lock().unwrap().len()), (0, 3, 27));
    });
}

#[test]
fn one_gateway_tells_until_its_lease_ends() {
    run(async {
        let pool = Fake::new(4);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        let teller = gate.telling("k", How::Put);
        teller
            .put(&bucket, "k", &data_of(1), &Terms::default())
            .await
            .unwrap();
        gate.gather().await;
        let (topics, start) = (gate.topics(), Bytes::new());
        let taken = topics.take(&topic.id, &start, 9, 77).await.unwrap();
        let Taken::Page(page) = taken else {
            panic!("nothing")
        };
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Others);
        assert!(told.lock().unwrap().is_empty());
        pool.pass(Duration::from_millis(LEASE + 1));
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        assert_eq!(told.lock().unwrap().len(), 1);
        // Who was slow hears that it is not its any more, and the count is right.
        let late = Settled {
            told: BTreeSet::new(),
            old: page.rows.into_iter().map(|(row, _)| row).collect(),
        };
        // Nor does it count as dropped what another has told.
        let settled = topics.settle(&topic.id, &late, (77, true)).await;
        assert_eq!(settled, Ok((false, 0)));
        assert_eq!(topics.queue(&topic.id).await.unwrap().rows, 0);
    });
}

#[test]
fn a_queue_has_a_bound_and_what_came_first_stays() {
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 1);
        let (topics, topic) = (gate.topics(), gate.topic().await);
        let rows = |n: std::ops::Range<u64>| -> BTreeMap<Bytes, Bytes> {
            n.map(|n| (Bytes::from(format!("e{n:04}")), Bytes::from_static(b"x")))
                .collect()
        };
        topics.add(&topic.id, &rows(0..150)).await.unwrap();
        topics.add(&topic.id, &rows(140..260)).await.unwrap();
        let queue = topics.queue(&topic.id).await.unwrap();
        assert_eq!((queue.rows, queue.full), (ROWS_MAX, 60));
        let held = pool.lock().objects[&format!("topic.{}", topic.id)].omap.clone();
        assert!(held.contains_key(&b"e0199"[..]) && !held.contains_key(&b"e0200"[..]));
        // What cannot be read is dropped, not kept for ever.
        let told = Told::default();
        while topics.queue(&topic.id).await.unwrap().rows > 0 {
            gate.tell(&topic, inbox(&told, "")).await;
        }
        assert!(told.lock().unwrap().is_empty());
    });
}

#[test]
fn events_outlive_their_bucket_and_not_their_topic() {
    run(async {
        let pool = Fake::new(6);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        let any = Terms::default();
        gate.telling("k", How::Put)
            .put(&bucket, "k", &data_of(1), &any)
            .await
            .unwrap();
        let deleter = gate.telling("k", How::Delete).objects;
        deleter.delete(&bucket, "k", Which::Current, &any).await.unwrap();
        gate.buckets.delete("b").await.unwrap();
        let other = Gate::new(&pool, 2);
        for _ in 0..4 {
            pool.pass(Duration::from_secs(7200));
            other.collect(0).await;
            other.gather().await;
        }
        assert_eq!(shards(&pool, &bucket), 0);
        assert_eq!(other.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        let mut all = names(&told);
        all.sort();
        assert_eq!(all, ["ObjectCreated:Put", "ObjectRemoved:Delete"]);
        let bucket = gate.make("b").await;
        gate.telling("k", How::Put)
            .put(&bucket, "k", &data_of(1), &any)
            .await
            .unwrap();
        gate.topics().delete("u", "t").await.unwrap();
        gate.gather().await;
        let queues = |pool: &Fake| {
            pool.lock()
                .objects
                .keys()
                .filter(|n| n.starts_with("topic."))
                .count()
        };
        assert_eq!(queues(&pool), 0);
        let again = gate.topic().await;
        assert_eq!(gate.tell(&again, inbox(&told, "")).await, Outcome::Idle);
        assert_eq!(told.lock().unwrap().len(), 2);
    });
}

#[test]
fn topics_that_were_made_or_removed_by_half_leave_nothing() {
    for at in 1..12 {
        run(async {
            let pool = Fake::new(at);
            let (gate, last) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            last.topics().create("u", "other", "http://h/", "").await.unwrap();
            pool.lock().killed.insert(1, at);
            tokio::select! {
                () = pool.death() => {}
                () = async {
                    gate.topic().await;
                    gate.topics().delete("u", "t").await.unwrap();
                } => {}
            }
            pool.pass(Duration::from_secs(120));
            last.topics().sweep().await.unwrap();
            let there = last.topics().of("u").await.unwrap();
            let world = pool.lock();
            let queues: Vec<_> = world
                .objects
                .keys()
                .filter_map(|n| n.strip_prefix("topic."))
                .collect();
            let mut ids: Vec<_> = there.iter().map(|t| t.id.as_str()).collect();
            ids.sort_unstable();
            assert_eq!(queues, ids, "{at}");
            assert!(!world.objects[TOPICS].omap.keys().any(|row| row.starts_with(b"x")));
        });
    }
}

#[test]
fn a_queue_that_takes_nothing_keeps_its_own_events_alone() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        let other = gate.topics().create("u", "other", "http://h/", "").await.unwrap();
        let rules = ["t", "other"].map(|topic| Notification {
            topic: topic.into(),
            ..rule()
        });
        let notice = Notice::of(&rules, ("b", "u", "k"), How::Put, &Asker::default());
        let teller = Gate {
            objects: gate.objects.telling(notice),
            ..gate.clone()
        };
        teller
            .put(&bucket, "k", &data_of(1), &Terms::default())
            .await
            .unwrap();
        // Its record cannot be read.
        let broken = Bytes::from_static(b"?");
        let row = Bytes::from_static(b"tu\0other");
        let was = pool
            .lock()
            .objects
            .get_mut(TOPICS)
            .unwrap()
            .omap
            .remove(&row)
            .unwrap();
        let queue = format!("topic.{}", other.id);
        let held = pool.lock().objects.remove(&queue).unwrap();
        gate.gather().await;
        // A topic that was removed gets nothing, and holds nothing up.
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        assert_eq!(told.lock().unwrap().len(), 1);
        teller
            .put(&bucket, "k", &data_of(1), &Terms::default())
            .await
            .unwrap();
        pool.lock()
            .objects
            .get_mut(TOPICS)
            .unwrap()
            .omap
            .insert(row.clone(), broken);
        gate.gather().await;
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        assert_eq!(told.lock().unwrap().len(), 1);
        // One that can be read again gets what waited.
        pool.lock().objects.insert(queue, held);
        pool.lock().objects.get_mut(TOPICS).unwrap().omap.insert(row, was);
        pool.pass(Duration::from_secs(60));
        gate.collect(900_000).await;
        gate.gather().await;
        for of in [&topic, &other] {
            assert_eq!(gate.tell(of, inbox(&told, "")).await, Outcome::Idle);
        }
        assert_eq!(told.lock().unwrap().len(), 3);
    });
}

#[test]
fn changes_wait_where_too_much_is_not_told_yet() {
    run(async {
        let pool = Fake::new(8);
        let gate = Gate::new(&pool, 1);
        let (bucket, any) = (gate.make("b").await, Terms::default());
        gate.topic().await;
        let teller = gate.telling("k", How::Put);
        let mut puts = 0;
        while teller.put(&bucket, "k", &data_of(1), &any).await.is_ok() {
            puts += 1;
        }
        assert_eq!(puts, crate::notify::WAITING_MAX);
        assert!(matches!(
            teller.put(&bucket, "k", &data_of(1), &any).await,
            Err(Error::Busy(_))
        ));
        // What nobody wants to know does not wait.
        gate.put(&bucket, "k", &data_of(1), &any).await.unwrap();
        gate.gather().await;
        teller.put(&bucket, "k", &data_of(1), &any).await.unwrap();
    });
}

#[test]
fn what_becomes_of_events_is_counted() {
    run(async {
        let pool = Fake::new(9);
        let gate = Gate::new(&pool, 1);
        let meters = Meters::new(&metrics::Registry::default());
        gate.objects.index.told().counted(&meters);
        let (bucket, topic, told) = (gate.make("b").await, gate.topic().await, Told::default());
        let put = async |key: &str| {
            let put = gate.telling(key, How::Put);
            put.put(&bucket, key, &data_of(1), &Terms::default())
                .await
                .unwrap();
        };
        for key in ["bad", "good", "good2"] {
            put(key).await;
        }
        let (rgw, events) = (&meters.rgw, &meters.events);
        assert_eq!((rgw.pubsub_event_triggered.get(), events.waiting.get()), (3, 3));
        gate.gather().await;
        assert_eq!(events.waiting.get(), 0);
        let courier = Courier::new(gate.gatherer(), inbox(&told, "bad"));
        let outcome = courier.tell(&topic, &mut Cursor::default()).await.unwrap();
        assert!(matches!(outcome, Outcome::Failed(_, true)));
        let pushed = || (rgw.pubsub_push_ok.get(), rgw.pubsub_push_failed.get());
        assert_eq!((pushed(), rgw.pubsub_push_pending.get()), ((2, 1), 0));
        assert_eq!(rgw.pubsub_event_lost.get(), 0, "it is tried again");
        pool.pass(Duration::from_millis(KEPT_FOR + 1));
        assert_eq!(gate.tell(&topic, inbox(&told, "")).await, Outcome::Idle);
        // A full queue, and a topic that is gone.
        let rows = (0..ROWS_MAX + 3).map(|n| (Bytes::from(format!("e{n:04}")), Bytes::from_static(b"x")));
        let dropped = gate.topics().add(&topic.id, &rows.collect()).await.unwrap();
        assert_eq!(dropped, 3);
        put("late").await;
        gate.gather().await;
        gate.topics().delete("u", "t").await.unwrap();
        put("later").await;
        gate.gather().await;
        let lost = [&events.dropped_old, &events.dropped_full, &events.dropped_gone].map(|c| c.get());
        assert_eq!((lost, rgw.pubsub_event_lost.get()), ([1, 1, 1], 3));
        // What a topic had that is gone is in no queue.
        courier.know(vec![topic.clone()]);
        courier.left(&topic, 5);
        assert_eq!(events.queued.get(), 5);
        courier.know(Vec::new());
        assert_eq!(events.queued.get(), 0);
    });
}

#[test]
fn a_check_looks_at_queues() {
    run(async {
        let pool = Fake::new(10);
        let gate = Gate::new(&pool, 1);
        let (bucket, topic) = (gate.make("b").await, gate.topic().await);
        let any = Terms::default();
        for key in ["k", "l", "m"] {
            let teller = gate.telling(key, How::Put);
            teller.put(&bucket, key, &data_of(1), &any).await.unwrap();
            if key == "l" {
                gate.gather().await;
            }
        }
        // Two in the queue, one in the index.
        let report = gate.check().await;
        assert_eq!((report.topics, report.events, report.dropped), (1, 3, 0));
        let queue = format!("topic.{}", topic.id);
        let told = |report: &crate::Report| report.problems.join("; ");
        // A row that was lost, and one that cannot be read.
        let (row, value) = {
            let mut world = pool.lock();
            let rows = &mut world.objects.get_mut(&queue).unwrap().omap;
            let row = rows.keys().find(|r| r.starts_with(b"e")).unwrap().clone();
            let value = rows.remove(&row).unwrap();
            (row, value)
        };
        let lost = told(&gate.report().await);
        assert!(lost.contains("topic t of u: 1 events of"), "{lost}");
        let put = |value: Bytes| {
            let mut world = pool.lock();
            world
                .objects
                .get_mut(&queue)
                .unwrap()
                .omap
                .insert(row.clone(), value);
        };
        put(Bytes::from_static(b"?"));
        let unread = told(&gate.report().await);
        assert!(unread.contains("1 events that cannot be read"), "{unread}");
        put(value);
        assert_eq!(gate.check().await.events, 3);
        pool.lock().objects.remove(&queue);
        let gone = told(&gate.report().await);
        assert!(gone.contains("its queue is not there"), "{gone}");
    });
}
