//! What is shown of buckets and users, and that looking changes nothing.

use super::*;
use crate::accounts::{Accounts, USERS};
use crate::container::Container;
use crate::quota::{Limits, Scope};
use crate::settings::{Block, Settings};
use crate::survey::Survey;

const ANYBODY: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b1/*"}]}"#;

async fn set(gate: &Gate, name: &str, settings: Settings) {
    let known = gate.buckets.known(name).await.unwrap();
    gate.buckets.set_settings(name, &known, &settings).await.unwrap();
}

#[test]
fn pages_of_buckets_say_what_is_set() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 0);
        for n in 0..5 {
            gate.make(&format!("b{n}")).await;
        }
        let of_b1 = |restrict| Settings {
            policy: ANYBODY.into(),
            block: Some(Block {
                restrict,
                ..Block::default()
            }),
            versioning: Versioning::Enabled,
            encrypt: true,
            ..Settings::default()
        };
        set(&gate, "b1", of_b1(false)).await;
        let swift = Container {
            read: ".r:*,.rlistings".into(),
            ..Container::default()
        };
        let of_b2 = Settings {
            container: Some(swift),
            ..Settings::default()
        };
        set(&gate, "b2", of_b2).await;
        let id = gate.buckets.get("b3").await.unwrap().id;
        for n in 0..40 {
            let data = data_of(n);
            gate.put(&id, &format!("k{n:02}"), &data, &Terms::default())
                .await
                .unwrap();
            gate.tend().await;
        }
        let before = pool.lock().objects.clone();

        let survey = Survey::new(pool.clone(), pool.clock());
        let first = survey.buckets("", 3).await.unwrap();
        let names: Vec<&str> = first.shown.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!((names, first.more), (vec!["b0", "b1", "b2"], true));
        let facts: Vec<_> = first.shown.iter().map(|(_, f)| f.as_ref().unwrap()).collect();
        assert_eq!(
            (facts[0].versioning, facts[0].policy, facts[0].parts),
            ("off", false, 1)
        );
        assert!(facts[0].public.is_empty() && facts[0].owner == "u" && !facts[0].deleting);
        assert!(facts[1].policy && facts[1].encrypted && facts[1].versioning == "on");
        assert_eq!(
            (&facts[1].public[..], &facts[2].public[..]),
            (&["policy"][..], &["Swift's ACL"][..])
        );
        let rest = survey.buckets("b2", 3).await.unwrap();
        assert_eq!((rest.shown.len(), rest.more), (2, false));
        let split = rest.shown[0].1.as_ref().unwrap();
        assert!(split.parts > 1 && !split.more_parts, "{split:?}");
        assert!(survey.buckets("b9", 3).await.unwrap().shown.is_empty());
        let after = pool.lock().objects.clone();
        assert!(before.keys().eq(after.keys()) && before.iter().all(|(k, o)| o.omap == after[k].omap));

        // A policy that is restricted lets nobody in; a record that cannot be read hides no other.
        set(&gate, "b1", of_b1(true)).await;
        let broken = Bytes::from_static(b"\xff");
        pool.lock()
            .objects
            .get_mut(BUCKETS)
            .unwrap()
            .omap
            .insert(Bytes::from_static(b"bb0"), broken);
        let shown = survey.buckets("", 9).await.unwrap().shown;
        assert!(shown[0].1.is_err() && shown[1].1.as_ref().unwrap().public.is_empty());
        assert_eq!(shown.len(), 5);
    });
}

#[test]
fn pages_of_users_have_no_secrets() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 0);
        let survey = Survey::new(pool.clone(), pool.clock());
        assert!(
            survey.users("", 9).await.unwrap().shown.is_empty(),
            "no gateway has begun"
        );
        assert!(survey.buckets("", 9).await.unwrap().shown.is_empty());
        accounts::ensure(&pool, USERS).await.unwrap();
        let accounts = Accounts::new(pool.clone(), pool.clock());
        let (_, key) = accounts.create("u", "Ursula").await.unwrap();
        accounts.create_key("u").await.unwrap();
        accounts.create("v", "").await.unwrap();
        gate.make("b").await;
        let counter = crate::counts::Counter::new(pool.clone(), gate.objects.index.clone(), pool.clock());
        let limits = Limits::new(pool.clone(), gate.buckets.clone(), counter, pool.clock());
        limits
            .set(Scope::User("u"), |q| {
                q.enabled = true;
                q.max_bytes = 7;
            })
            .await
            .unwrap();
        let page = survey.users("", 1).await.unwrap();
        assert!(page.more && page.shown.len() == 1);
        let (name, facts) = &page.shown[0];
        let facts = facts.as_ref().unwrap();
        assert_eq!((name.as_str(), facts.display.as_str()), ("u", "Ursula"));
        assert_eq!((facts.keys, facts.buckets, facts.quotas[0].max_bytes), (2, 1, 7));
        let text = format!("{page:?}");
        assert!(!text.contains(&key.secret) && !text.contains(&key.access));
        let rest = survey.users("u", 9).await.unwrap();
        assert!(!rest.more && rest.shown[0].0 == "v" && rest.shown[0].1.as_ref().unwrap().buckets == 0);
    });
}
