//! What buckets are said to hold, against what they hold; and quotas.

use super::*;
use crate::accounts::USERS;
use crate::amount::Amount;
use crate::buckets::count_row;
use crate::counts::Counter;
use crate::quota::{Limits, Quota, Scope};
use denc::{Decode, Encode};

fn counter(gate: &Gate) -> Counter<Fake> {
    let clock = gate.objects.clock.clone();
    Counter::new(gate.pool.clone(), gate.objects.index.clone(), clock)
}

fn row(gate: &Gate, bucket: &str) -> Amount {
    let world = gate.pool.lock();
    let row = world.objects[COUNTS].omap.get(&count_row(bucket));
    crate::Count::from_bytes(row.unwrap()).unwrap().held
}

/// Random work of one gateway, with versions or without; errors are passed by.
async fn work_on(gate: &Gate, bucket: &str, keys: &[String], versioning: Versioning) {
    let terms = Terms {
        versioning,
        ..Terms::default()
    };
    for _ in 0..60 {
        let random = &gate.pool.random;
        let key = &keys[random.below(keys.len() as u64) as usize];
        let _ = match random.below(3) {
            0 => gate
                .objects
                .delete(bucket, key, Which::Current, &terms)
                .await
                .map(drop),
            _ => gate.put(bucket, key, &data_of(random.next()), &terms).await,
        };
        gate.tend().await;
    }
}

#[test]
fn gateways_add_up_what_an_index_holds() {
    run(async {
        for (seed, versioning) in [
            (1, Versioning::Off),
            (2, Versioning::Enabled),
            (3, Versioning::Suspended),
        ] {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (0..3).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            let keys: Vec<String> = (0..60).map(|n| format!("k{n:02}")).collect();
            for _ in 0..2 {
                let [a, b, c] = &gates[..] else { unreachable!() };
                tokio::join!(
                    work_on(a, &bucket, &keys[..30], versioning),
                    work_on(b, &bucket, &keys, versioning),
                    work_on(c, &bucket, &keys[30..], versioning),
                );
                for gate in &gates {
                    counter(gate).flush().await.unwrap();
                    assert_eq!(gate.objects.index.tally().of(&bucket), Amount::default());
                }
                let held = row(&gates[0], &bucket);
                assert!(held.objects > 0 && held.bytes > 0);
                assert_eq!(held, counter(&gates[0]).walk(&bucket).await.unwrap(), "{seed}");
            }
            assert!(shards(&pool, &bucket) > 1);
        }
    });
}

#[test]
fn what_was_lost_is_counted_anew() {
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 0);
        let bucket = gate.make("b").await;
        let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        work_on(&gate, &bucket, &keys, Versioning::Off).await;
        // It is killed before it writes; another one counts when it is time.
        let other = Gate::new(&pool, 1);
        let counter = counter(&other);
        counter.round(&other.buckets).await.unwrap();
        assert_eq!(row(&other, &bucket), Amount::default(), "it was counted today");
        pool.pass(Duration::from_secs(25 * 3600));
        counter.round(&other.buckets).await.unwrap();
        let held = row(&other, &bucket);
        assert!(held.objects > 0);
        assert_eq!(held, counter.walk(&bucket).await.unwrap());
        // One that was never counted is counted at once.
        pool.lock()
            .objects
            .get_mut(COUNTS)
            .unwrap()
            .omap
            .remove(&count_row(&bucket));
        counter.round(&other.buckets).await.unwrap();
        assert_eq!(row(&other, &bucket), held);
        // What is gone takes its row along, with its index.
        for key in &keys {
            let none = Terms::default();
            other
                .objects
                .delete(&bucket, key, Which::Current, &none)
                .await
                .unwrap();
        }
        other.buckets.delete("b").await.unwrap();
        counter.flush().await.unwrap();
        other.settle(0).await;
        assert!(!pool.lock().objects[COUNTS].omap.contains_key(&count_row(&bucket)));
    });
}

#[test]
fn a_quota_counts_what_was_admitted_and_what_others_wrote() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 0);
        accounts::ensure(&pool, USERS).await.unwrap();
        gate.make("a").await;
        let id = gate.make("b").await;
        let (counter, clock) = (counter(&gate), gate.objects.clock.clone());
        let limits = Limits::new(pool.clone(), gate.buckets.clone(), counter.clone(), clock);
        let of = |objects: i64| move |q: &mut Quota| (q.enabled, q.max_objects) = (true, objects);
        let bucket = gate.buckets.get("b").await.unwrap();
        let one = Amount::object(10);
        assert_eq!(limits.check(&bucket, one).await, Ok(()));
        limits.set(Scope::Bucket("b"), of(2)).await.unwrap();
        pool.pass(Duration::from_secs(6));
        let first = limits.admit(&bucket, one).await.unwrap();
        let second = limits.admit(&bucket, one).await.unwrap();
        for _ in 0..2 {
            assert_eq!(limits.check(&bucket, one).await, Err(Error::Quota("bucket")));
            pool.pass(Duration::from_secs(6));
        }
        // It was not put after all.
        drop((first, second));
        assert_eq!(limits.check(&bucket, one).await, Ok(()));
        // What is overwritten again and again adds up to nothing.
        for _ in 0..10 {
            drop(limits.admit(&bucket, one).await.unwrap());
        }
        let count = crate::Count {
            held: Amount { bytes: 0, objects: 2 },
            counted: 0,
        };
        let value = count.to_bytes();
        pool.lock()
            .objects
            .get_mut(COUNTS)
            .unwrap()
            .omap
            .insert(count_row(&id), value);
        pool.pass(Duration::from_secs(6));
        assert_eq!(limits.check(&bucket, one).await, Err(Error::Quota("bucket")));
        // The user's own, of both buckets; and the defaults of who has none.
        limits
            .set(Scope::Bucket("b"), |q| q.enabled = false)
            .await
            .unwrap();
        limits.set(Scope::Users, of(2)).await.unwrap();
        pool.pass(Duration::from_secs(6));
        assert_eq!(limits.check(&bucket, one).await, Err(Error::Quota("user")));
        limits.set(Scope::User("u"), of(3)).await.unwrap();
        pool.pass(Duration::from_secs(6));
        let a = gate.buckets.get("a").await.unwrap();
        let _admitted = limits.admit(&a, one).await.unwrap();
        assert_eq!(limits.check(&bucket, one).await, Err(Error::Quota("user")));
        assert_eq!(limits.get(Scope::Users).await.unwrap().max_objects, 2);
    });
}
