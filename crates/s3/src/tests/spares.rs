//! Claims that are made before anybody needs them, and given back.

use super::{Gate, data_of, run};
use crate::fake::Fake;
use crate::objects::Terms;
use crate::spares::{BATCH, IDLE_MS};
use std::time::Duration;

/// Intents in all indexes.
fn intents(pool: &Fake) -> usize {
    let world = pool.lock();
    let rows = world.objects.values().flat_map(|o| o.omap.keys());
    rows.filter(|row| row.first() == Some(&b'i')).count()
}

async fn put(gate: &Gate, bucket: &str, n: u64) {
    let terms = Terms::default();
    gate.put(bucket, &format!("k{n}"), &data_of(n), &terms)
        .await
        .unwrap();
}

#[test]
fn where_much_is_put_claims_are_made_before_and_given_back() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1).sparing();
        let bucket = gate.make("b").await;
        // The first does not know yet where its key is, and is not counted.
        for n in 0..8 {
            put(&gate, &bucket, n).await;
            assert_eq!(intents(&pool), 0, "that is not much");
        }
        put(&gate, &bucket, 8).await;
        for _ in 0..1000 {
            io::task::yield_now().await;
        }
        assert_eq!(intents(&pool), BATCH);
        for n in 9..13 {
            put(&gate, &bucket, n).await;
        }
        assert_eq!(intents(&pool), BATCH - 4, "each took one");
        gate.objects.data.release(false).await;
        assert_eq!(intents(&pool), BATCH - 4, "they are in use");
        pool.pass(Duration::from_millis(IDLE_MS));
        gate.objects.data.release(false).await;
        assert_eq!(intents(&pool), 0);
        put(&gate, &bucket, 13).await;
        gate.settle(14).await;
    });
}

#[test]
fn a_gateway_that_stops_gives_all_back_and_what_one_leaves_ends() {
    run(async {
        let pool = Fake::new(2);
        let gates = [1, 2].map(|n| Gate::new(&pool, n).sparing());
        let bucket = gates[0].make("b").await;
        for (n, gate) in gates.iter().enumerate() {
            for key in 0..9 {
                put(gate, &bucket, n as u64 * 9 + key).await;
            }
        }
        for _ in 0..1000 {
            io::task::yield_now().await;
        }
        assert_eq!(intents(&pool), 2 * BATCH);
        gates[0].objects.data.release(true).await;
        assert_eq!(intents(&pool), BATCH, "the other one's stay");
        put(&gates[0], &bucket, 0).await;
        assert_eq!(intents(&pool), BATCH, "none are made after the end");
        Gate::new(&pool, 9).settle(18).await;
        assert_eq!(intents(&pool), 0);
        // Its claims have ended meanwhile: it makes others.
        put(&gates[1], &bucket, 0).await;
        gates[1].settle(18).await;
    });
}
