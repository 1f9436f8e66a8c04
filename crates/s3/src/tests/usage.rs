//! What the usage log says, against what was asked.

use super::*;
use crate::usage::{DAY_MS, HOUR_MS, Kinds, OTHERS, Place, Sums, USAGE, Usage, Which as Entries};

fn one(bytes: u64) -> Sums {
    Sums {
        ops: 1,
        successful_ops: 1,
        bytes_sent: bytes,
        bytes_received: 0,
    }
}

fn total(entries: &[(Place, Kinds)]) -> Sums {
    let mut total = Sums::default();
    entries
        .iter()
        .flat_map(|(_, k)| k.of.values())
        .for_each(|s| total += *s);
    total
}

fn of_user(user: &str) -> Entries {
    Entries {
        user: Some(user.into()),
        ..Entries::default()
    }
}

#[test]
fn gateways_add_up_what_was_asked() {
    run(async {
        for seed in 1..6 {
            let pool = Fake::new(seed);
            let logs: Vec<Usage<Fake>> = (0..3)
                .map(|n| {
                    let mut pool = pool.clone();
                    pool.gateway = n;
                    let clock = pool.clock();
                    Usage::new(pool, clock)
                })
                .collect();
            let mut want: BTreeMap<(String, String, &str), u64> = BTreeMap::new();
            for _ in 0..5 {
                for log in &logs {
                    for _ in 0..20 {
                        let n = pool.random.next();
                        let place = (format!("u{}", n % 3), format!("b{}", n % 4));
                        let kind = ["get_obj", "put_obj"][(n % 2) as usize];
                        log.add(&place.0, &place.1, kind, one(n % 100));
                        *want.entry((place.0, place.1, kind)).or_default() += n % 100;
                    }
                }
                let [a, b, c] = &logs[..] else { unreachable!() };
                let (a, b, c) = tokio::join!(a.flush(), b.flush(), c.flush());
                // Who was outrun too often tries again.
                let _ = (a, b, c);
                pool.pass(Duration::from_millis(HOUR_MS / 2));
            }
            for log in &logs {
                log.flush().await.unwrap();
            }
            let entries = logs[0].show(&Entries::default()).await.unwrap();
            let mut have: BTreeMap<(String, String, &str), u64> = BTreeMap::new();
            for (place, kinds) in &entries {
                for (kind, sums) in &kinds.of {
                    let kind = ["get_obj", "put_obj"].into_iter().find(|k| k == kind).unwrap();
                    *have
                        .entry((place.user.clone(), place.bucket.clone(), kind))
                        .or_default() += sums.bytes_sent;
                }
            }
            assert_eq!(have, want);
            assert_eq!(total(&entries).ops, 300);
            assert!(
                entries.iter().map(|e| e.0.hour).collect::<BTreeSet<_>>().len() >= 2,
                "hours are apart"
            );
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        }
    });
}

#[test]
fn what_is_not_heard_of_is_not_written_twice() {
    run(async {
        let pool = Fake::new(3);
        let log = Usage::new(pool.clone(), pool.clock());
        log.add("u", "b", "get_obj", one(1));
        log.flush().await.unwrap();
        pool.lock().fails = 3;
        for _ in 0..200 {
            log.add("u", "b", "get_obj", one(1));
            let _ = log.flush().await;
        }
        pool.lock().fails = 0;
        log.flush().await.unwrap();
        let ops = total(&log.show(&Entries::default()).await.unwrap()).ops;
        assert!((100..=201).contains(&ops), "{ops}");
    });
}

#[test]
fn the_log_has_a_bound() {
    run(async {
        let pool = Fake::new(4);
        let log = Usage::new(pool.clone(), pool.clock());
        for round in 0..6 {
            for n in 0..50 {
                log.add(&format!("u{round}"), &format!("b{n}"), "get_obj", one(1));
            }
            log.flush().await.unwrap();
        }
        let entries = log.show(&Entries::default()).await.unwrap();
        assert!(entries.len() <= 61, "{}", entries.len());
        assert_eq!(total(&entries).ops, 300, "nothing is lost");
        assert!(total(&log.show(&of_user(OTHERS)).await.unwrap()).ops >= 240);
        // Rows that there are go on.
        log.add("u0", "b0", "get_obj", one(1));
        log.flush().await.unwrap();
        let which = Entries {
            bucket: Some("b0".into()),
            ..of_user("u0")
        };
        assert_eq!(total(&log.show(&which).await.unwrap()).ops, 2);
        // What is removed makes room.
        log.trim(&of_user("u0")).await.unwrap();
        assert_eq!(log.show(&of_user("u0")).await.unwrap(), []);
        log.add("new", "b", "get_obj", one(1));
        log.flush().await.unwrap();
        assert_eq!(log.show(&of_user("new")).await.unwrap().len(), 1);
    });
}

#[test]
fn it_is_removed_by_user_time_and_age() {
    run(async {
        let pool = Fake::new(5);
        let log = Usage::new(pool.clone(), pool.clock());
        let begin = pool.clock().now_ms() / DAY_MS * DAY_MS + DAY_MS;
        pool.pass(Duration::from_millis(begin - pool.clock().now_ms()));
        assert_eq!(log.show(&Entries::default()).await.unwrap(), []);
        log.trim(&Entries::default()).await.unwrap();
        for _ in 0..5 {
            for hour in 0..24 {
                log.add("u", "b", "get_obj", one(1));
                if hour % 6 == 0 {
                    log.add("v", "c", "put_obj", one(1));
                }
                log.flush().await.unwrap();
                pool.pass(Duration::from_millis(HOUR_MS));
            }
        }
        let count = |which: Entries| {
            let log = log.clone();
            async move { log.show(&which).await.unwrap().len() }
        };
        let between = |from: u64, to: u64| Entries {
            from: Some(begin + from * HOUR_MS),
            to: Some(begin + to * HOUR_MS),
            ..Entries::default()
        };
        assert_eq!(count(Entries::default()).await, 5 * 24 + 5 * 4);
        assert_eq!(count(between(3, 30)).await, 27 + 4);
        log.trim(&Entries {
            user: Some("u".into()),
            ..between(3, 30)
        })
        .await
        .unwrap();
        assert_eq!(count(between(3, 30)).await, 4);
        // A day as a whole, and pieces of two.
        log.trim(&between(46, 74)).await.unwrap();
        assert_eq!(
            (count(between(46, 74)).await, count(between(44, 76)).await),
            (0, 4)
        );
        let days = || pool.lock().objects[USAGE].omap.len();
        assert_eq!(days(), 4);
        log.expire(1).await.unwrap();
        assert_eq!(
            (days(), count(between(0, 96)).await, count(between(96, 120)).await),
            (1, 0, 28)
        );
        assert_eq!(
            pool.lock()
                .objects
                .keys()
                .filter(|k| k.starts_with("usage."))
                .count(),
            1
        );
        log.trim(&Entries::default()).await.unwrap();
        assert_eq!(count(Entries::default()).await, 0);
    });
}

#[test]
fn a_row_that_cannot_be_read_stops_no_other() {
    run(async {
        let pool = Fake::new(6);
        let log = Usage::new(pool.clone(), pool.clock());
        for user in ["u", "v"] {
            log.add(user, "b", "get_obj", one(1));
        }
        log.flush().await.unwrap();
        let (day, hour) = (
            pool.clock().now_ms() / DAY_MS,
            pool.clock().now_ms() / HOUR_MS % 24,
        );
        let damage = |row: String, value: &'static [u8]| {
            let mut all = pool.lock();
            let of_day = all.objects.get_mut(&format!("{USAGE}.{day:06}")).unwrap();
            of_day.omap.insert(Bytes::from(row), Bytes::from_static(value));
        };
        let ops = async |user: &str| total(&log.show(&of_user(user)).await.unwrap()).ops;
        damage(format!("u{hour:02}u\0b"), b"junk");
        for user in ["u", "v", "w"] {
            log.add(user, "b", "get_obj", one(1));
        }
        log.flush().await.unwrap();
        assert_eq!((ops("v").await, ops("w").await, ops(OTHERS).await), (2, 1, 1));
        assert!(log.show(&of_user("u")).await.is_err(), "it is not written over");
        // The row of others, and then the count of rows.
        damage(format!("u{hour:02}{OTHERS}\0{OTHERS}"), b"junk");
        for user in ["u", "v", "w"] {
            log.add(user, "b", "get_obj", one(1));
        }
        log.flush().await.unwrap();
        assert_eq!((ops("v").await, ops("w").await), (3, 2));
        log.trim(&of_user("u")).await.unwrap();
        log.trim(&of_user(OTHERS)).await.unwrap();
        damage("n".into(), b"junk");
        log.add("new", "b", "get_obj", one(1));
        log.flush().await.unwrap();
        assert_eq!((ops("new").await, ops(OTHERS).await), (0, 1));
    });
}

#[test]
fn a_flush_that_is_dropped_loses_nothing_but_what_was_sent() {
    run(async {
        let mut lost_none = 0;
        for steps in 0..60 {
            let pool = Fake::new(steps + 1);
            let log = Usage::new(pool.clone(), pool.clock());
            for n in 0..20 {
                log.add("u", &format!("b{n}"), "get_obj", one(1));
            }
            let mut flush = Box::pin(log.flush());
            for _ in 0..steps {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                if flush.as_mut().poll(&mut cx).is_ready() {
                    break;
                }
            }
            drop(flush);
            log.flush().await.unwrap();
            let ops = total(&log.show(&Entries::default()).await.unwrap()).ops;
            // One operation has 8 rows.
            assert!((12..=20).contains(&ops), "{ops} after {steps}");
            lost_none += u64::from(ops == 20);
        }
        assert!(lost_none >= 30, "{lost_none}");
    });
}
