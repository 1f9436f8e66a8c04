//! Lifecycles: what has a term goes when it is over, and nothing else, whatever fails meanwhile.

use super::*;
use crate::lifecycle::{DAY, Rule};
use crate::record::{DELETE_AT, Entry, entry_row, upload_row};
use crate::settings::Settings;

fn rule(prefix: &str, days: u32) -> Rule {
    Rule {
        id: prefix.into(),
        enabled: true,
        prefix: Some(prefix.into()),
        days: Some(days),
        ..Rule::default()
    }
}

fn days(n: u64) -> Duration {
    Duration::from_millis(n * DAY)
}

impl Gate {
    async fn set_rules(&self, name: &str, lifecycle: Vec<Rule>) -> Result<()> {
        let known = self.buckets.known(name).await?;
        let settings = Settings {
            lifecycle,
            ..Settings::default()
        };
        self.buckets.set_settings(name, &known, &settings).await
    }

    async fn put_all(&self, bucket: &str, keys: &[String]) {
        for key in keys {
            let data = data_of(self.pool.random.next());
            self.put(bucket, key, &data, &Terms::default()).await.unwrap();
            self.tend().await;
        }
    }

    /// As many rounds as a walk of this test takes; what went.
    async fn rounds(&self, n: usize) -> (u64, u64) {
        let (mut expired, mut aborted) = (0, 0);
        for _ in 0..n {
            self.collector(0).round().await.unwrap_or_default();
            let done = self.end_terms().await;
            (expired, aborted) = (expired + done.expired, aborted + done.aborted);
        }
        (expired, aborted)
    }

    async fn all(&self, bucket: &str) -> Vec<String> {
        self.names(bucket, listing(1000)).await.unwrap()
    }
}

fn keys(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{prefix}{i:03}")).collect()
}

#[test]
fn what_has_a_term_goes_when_it_is_over() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        gate.set_rules("b", vec![rule("t", 1)]).await.unwrap();
        let (old, young, kept) = (keys("t/a", 60), keys("t/b", 20), keys("s", 30));
        gate.put_all(&bucket, &old).await;
        gate.put_all(&bucket, &kept).await;
        assert!(shards(&pool, &bucket) > 1);
        assert_eq!(gate.rounds(20).await, (0, 0));
        pool.pass(days(1));
        gate.put_all(&bucket, &young).await;
        // A day and up to midnight.
        assert_eq!(gate.rounds(20).await.0, 0);
        pool.pass(days(1));
        // Bounded: a round does a part, and the next goes on, in another gateway, too.
        let first = gate.rounds(1).await.0;
        assert!(first > 0 && first < 60, "{first}");
        let rest = Gate::new(&pool, 2).rounds(20).await.0;
        assert_eq!(first + rest, 60);
        let left: Vec<String> = kept.iter().chain(&young).cloned().collect();
        assert_eq!(gate.all(&bucket).await, left);
        // A walk each day, not each round.
        pool.pass(days(1));
        assert_eq!(gate.rounds(20).await.0, 20);
        gate.settle(30).await;
        assert_eq!(gate.all(&bucket).await, kept);
    });
}

#[test]
fn objects_that_end_by_themselves_go_within_the_hour() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let known = gate.buckets.known("b").await.unwrap();
        let settings = Settings {
            ending: true,
            ..Settings::default()
        };
        gate.buckets.set_settings("b", &known, &settings).await.unwrap();
        let (kept, ending) = (keys("s", 30), keys("t", 30));
        gate.put_all(&bucket, &kept).await;
        gate.put_all(&bucket, &ending).await;
        let at = (gate.objects.clock.now_ms() / 1000 + 10).to_string();
        let amend = async |key: &str, at: Option<&String>| {
            let change = |e: &mut Entry| {
                e.attributes.headers.remove(DELETE_AT);
                let ends = at.map(|at| (DELETE_AT.to_string(), at.clone()));
                e.attributes.headers.extend(ends);
                Ok(())
            };
            let amended = gate.objects.amend(&bucket, key, Which::Current, change);
            amended.await.unwrap()
        };
        for key in &ending {
            let entry = amend(key, Some(&at)).await;
            let end = at.parse::<u64>().unwrap() * 1000;
            assert!(!entry.attributes.has_ended(end - 1) && entry.attributes.has_ended(end));
        }
        assert_eq!(gate.rounds(20).await, (0, 0));
        pool.pass(Duration::from_secs(10));
        amend("t007", None).await;
        assert_eq!(gate.rounds(20).await, (0, 0), "a walk each hour, not each round");
        pool.pass(days(1) / 24);
        assert_eq!(gate.rounds(20).await, (29, 0));
        gate.settle(31).await;
        let left: Vec<String> = kept.iter().cloned().chain(["t007".into()]).collect();
        assert_eq!(gate.all(&bucket).await, left);
    });
}

#[test]
fn rules_that_are_off_or_gone_remove_nothing() {
    run(async {
        let pool = Fake::new(2);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let all = keys("t", 50);
        gate.put_all(&bucket, &all).await;
        pool.pass(days(9));
        let off = Rule {
            enabled: false,
            ..rule("", 1)
        };
        gate.set_rules("b", vec![off]).await.unwrap();
        assert_eq!(gate.rounds(10).await.0, 0);
        gate.set_rules("b", vec![rule("", 1)]).await.unwrap();
        let some = gate.rounds(1).await.0;
        assert!(some > 0 && some < 50, "{some}");
        gate.set_rules("b", Vec::new()).await.unwrap();
        assert_eq!(gate.rounds(10).await.0, 0);
        assert_eq!(gate.all(&bucket).await.len() as u64, 50 - some);
        // New rules are looked at at once, and for all keys.
        gate.set_rules("b", vec![rule("t", 1)]).await.unwrap();
        gate.put_all(&bucket, &["a".to_string()]).await;
        assert_eq!(gate.rounds(20).await.0, 50 - some);
        assert_eq!(gate.all(&bucket).await, ["a"]);
        // Nothing of it stays behind with the bucket.
        gate.objects
            .delete(&bucket, "a", Which::Current, &Terms::default())
            .await
            .unwrap();
        gate.buckets.delete("b").await.unwrap();
        let left = pool.lock().objects[BUCKETS].omap.len();
        assert_eq!(left, 1, "the index that is to be removed");
        gate.settle(0).await;
    });
}

#[test]
fn an_object_that_was_replaced_is_another() {
    run(async {
        let pool = Fake::new(3);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        gate.put_all(&bucket, &["k".to_string()]).await;
        let seen = gate.objects.entry(&bucket, "k").await.unwrap();
        gate.put_all(&bucket, &["k".to_string()]).await;
        assert_eq!(
            gate.objects
                .delete_seen(&bucket, "k", &seen, Versioning::Off)
                .await,
            Ok(false)
        );
        let amended = gate
            .objects
            .amend(&bucket, "k", Which::Current, |e| {
                e.attributes.tags.insert("a".into(), "b".into());
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(
            gate.objects
                .delete_seen(&bucket, "k", &amended, Versioning::Off)
                .await,
            Ok(true)
        );
        assert_eq!(
            gate.objects
                .delete_seen(&bucket, "k", &amended, Versioning::Off)
                .await,
            Ok(false)
        );
        gate.settle(0).await;
    });
}

#[test]
fn rows_that_cannot_be_read_stop_nothing() {
    run(async {
        let pool = Fake::new(4);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        gate.set_rules("b", vec![rule("", 1)]).await.unwrap();
        gate.put_all(&bucket, &keys("k", 12)).await;
        let shard = format!("index.{bucket}.0");
        let bad = Bytes::from_static(b"\xff");
        for key in keys("bad", 100) {
            let mut world = pool.lock();
            world
                .objects
                .get_mut(&shard)
                .unwrap()
                .omap
                .insert(entry_row(&key), bad.clone());
        }
        for row in [upload_row("a", "u"), Bytes::from_static(b"u\xff")] {
            pool.lock()
                .objects
                .get_mut(&shard)
                .unwrap()
                .omap
                .insert(row, bad.clone());
        }
        let upload = gate
            .objects
            .begin_upload(&bucket, "z", Attributes::default(), None, Default::default())
            .await
            .unwrap();
        let abort = Rule {
            abort: Some(1),
            ..rule("", 1)
        };
        gate.set_rules("b", vec![abort]).await.unwrap();
        // How far a walk came cannot be read, either.
        let row: Bytes = [b"l", bucket.as_bytes()].concat().into();
        pool.lock()
            .objects
            .get_mut(BUCKETS)
            .unwrap()
            .omap
            .insert(row, bad.clone());
        pool.pass(days(2));
        assert_eq!(gate.rounds(40).await, (12, 1));
        let gone = gate.objects.upload(&bucket, "z", &upload).await;
        assert_eq!(gone, Err(Error::NoSuchUpload));
        assert_eq!(
            pool.lock().objects[&shard].omap.get(&entry_row("bad001")),
            Some(&bad)
        );
    });
}

#[test]
fn uploads_that_nobody_completes_are_aborted() {
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let abort = Rule {
            days: None,
            abort: Some(2),
            ..rule("t", 1)
        };
        gate.set_rules("b", vec![abort]).await.unwrap();
        let begin = async |key: &str| {
            let attributes = Attributes::default();
            let id = gate
                .objects
                .begin_upload(&bucket, key, attributes, None, Default::default())
                .await
                .unwrap();
            part(&gate, (&bucket, key, &id), 1, 10).await.unwrap();
            id
        };
        let (old, other) = (begin("t1").await, begin("s").await);
        pool.pass(days(1));
        let young = begin("t2").await;
        assert_eq!(gate.rounds(9).await, (0, 0));
        pool.pass(days(2));
        assert_eq!(gate.rounds(9).await, (0, 1));
        let there = async |key: &str, id: &str| gate.objects.upload(&bucket, key, id).await.is_ok();
        assert!(!there("t1", &old).await && there("t2", &young).await && there("s", &other).await);
        gate.put_all(&bucket, &["t".to_string()]).await;
        gate.settle(3).await;
    });
}

/// Puts on keys of its own, by one who keeps what may be there, and when it was put.
async fn history(seed: u64) {
    let pool = Fake::new(seed);
    let gate = Gate::new(&pool, 1);
    let bucket = gate.make("b").await;
    gate.set_rules("b", vec![rule("t", 1)]).await.unwrap();
    pool.lock().fails = [0, 40, 15][seed as usize % 3];
    let all: Vec<String> = keys("s", 20).into_iter().chain(keys("t", 20)).collect();
    // What is there by the last answer, with the end of its term; None: nobody was told.
    let mut may: BTreeMap<String, Option<(Bytes, u64)>> = BTreeMap::new();
    let work = async {
        for _ in 0..150 {
            let key = &all[pool.random.below(40) as usize];
            let data = data_of(pool.random.next());
            let put = gate.put(&bucket, key, &data, &Terms::default()).await;
            let now = gate.objects.clock.now_ms();
            may.insert(key.clone(), put.is_ok().then_some((data, now + DAY)));
            gate.tend().await;
            pool.pass(Duration::from_millis(pool.random.below(DAY / 20)));
        }
    };
    let collect = async |n| {
        let collector = Gate::new(&pool, n);
        for _ in 0..40 {
            collector.collect(3_600_000).await;
        }
    };
    tokio::join!(work, collect(2), collect(3));
    pool.lock().fails = 0;
    let now = gate.objects.clock.now_ms();
    for (key, held) in &may {
        let Some((data, end)) = held else { continue };
        let there = gate.read(&bucket, key).await.unwrap();
        match key.starts_with('t') && *end <= now {
            true => assert!(there.is_none() || there.as_ref() == Some(data), "{seed} {key}"),
            false => assert_eq!(there.as_ref(), Some(data), "{seed} {key}"),
        }
    }
    pool.pass(days(3));
    gate.rounds(30).await;
    let left = gate.all(&bucket).await;
    assert!(left.iter().all(|k| k.starts_with('s')), "{seed} {left:?}");
    for (key, held) in may.iter().filter(|(k, _)| k.starts_with('s')) {
        assert!(held.is_none() || left.contains(key), "{seed} {key}");
    }
    gate.settle(left.len()).await;
}

#[test]
fn nothing_goes_before_its_time_whatever_fails() {
    for seed in 1..=40 {
        run(history(seed));
    }
}

#[test]
fn versions_and_delete_markers_have_terms_of_their_own() {
    run(async {
        let pool = Fake::new(6);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let enabled = Versioning::Enabled;
        let settings = |lifecycle| Settings {
            lifecycle,
            versioning: enabled,
            ..Settings::default()
        };
        let set = async |rules: Vec<Rule>| {
            let known = gate.buckets.known("b").await.unwrap();
            gate.buckets
                .set_settings("b", &known, &settings(rules))
                .await
                .unwrap();
        };
        for n in 0..60 {
            let put = async |key: String| {
                gate.put_version(&bucket, &key, &data_of(n), enabled)
                    .await
                    .unwrap();
                gate.tend().await;
            };
            put("many".into()).await;
            put(format!("t{n:02}")).await;
        }
        let none = Rule {
            days: None,
            ..rule("", 1)
        };
        set(vec![
            rule("t", 1),
            Rule {
                id: "older".into(),
                older: Some(1),
                keep: 3,
                ..none.clone()
            },
        ])
        .await;
        assert_eq!(gate.rounds(30).await.0, 0);
        pool.pass(days(3));
        // The current ones of t get markers, those of which there is nothing but one stay one of three; all but three older ones go.
        assert_eq!(gate.rounds(60).await.0, 60 + 56);
        assert_eq!(gate.all(&bucket).await, ["many"]);
        let report = gate.check().await;
        assert_eq!((report.objects, report.older, report.markers), (1, 3 + 60, 60));
        // Markers that something is under stay.
        set(vec![Rule {
            marker: true,
            ..none.clone()
        }])
        .await;
        assert_eq!(gate.rounds(30).await.0, 0);
        set(vec![
            Rule {
                older: Some(1),
                ..none.clone()
            },
            Rule {
                id: "marker".into(),
                marker: true,
                ..none
            },
        ])
        .await;
        pool.pass(days(3));
        assert_eq!(gate.rounds(60).await.0, 63);
        // What was under them went in the same walk, or in the one before.
        pool.pass(days(1));
        assert_eq!(gate.rounds(60).await.0, 60);
        let report = gate.check().await;
        assert_eq!((report.objects, report.older, report.markers), (1, 0, 0));
        gate.settle(1).await;
    });
}
