//! Roles and their sessions: whose they are, what their tokens are worth, and what they let anybody do.

use super::Gate;
use crate::accounts::{self, Accounts, USERS};
use crate::fake::Fake;
use crate::policy::{Action, Request};
use crate::seal::Key;
use crate::session::{self, Claim, Opened, Session};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

const TRUST: &str = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam:::user/bob"}, "Action": "sts:AssumeRole"}}"#;

fn allowing(action: &str, resource: &str) -> String {
    format!(r#"{{"Statement": {{"Effect": "Allow", "Action": "{action}", "Resource": "{resource}"}}}}"#)
}

async fn accounts_of(pool: &Fake) -> Accounts<Fake> {
    accounts::ensure(pool, USERS).await.unwrap();
    accounts::ensure(pool, crate::buckets::BUCKETS).await.unwrap();
    let accounts = Accounts::new(pool.clone(), pool.clock());
    for name in ["alice", "bob"] {
        accounts.create(name, "").await.unwrap();
    }
    accounts
}

#[test]
fn roles_are_of_the_user_who_was_there() {
    io::task::block_on(async {
        let pool = Fake::new(7);
        let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
        let create = async |name: &str, trust: &str, longest| {
            let made = accounts.create_role(name, "alice", trust, longest, false).await;
            made.map(drop)
        };
        let nobody = TRUST.replace("bob", "nobody");
        let large = TRUST.replace(
            "{\"Effect",
            &format!("{{\"Sid\": \"{}\", \"Effect", "s".repeat(5000)),
        );
        for (name, trust, longest) in [
            ("a/b", TRUST, 3600),
            ("", TRUST, 3600),
            ("r", TRUST, 899),
            ("r", TRUST, 43_201),
            ("r", nobody.as_str(), 3600),
            ("r", large.as_str(), 3600),
            ("r", "{}", 3600),
        ] {
            let refused = create(name, trust, longest).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{name} {trust}");
        }
        create("r", TRUST, 3600).await.unwrap();
        assert_eq!(create("r", TRUST, 3600).await, Err(Error::RoleExists));
        let made = accounts.role_of("r", "alice").await.unwrap();
        assert_eq!(accounts.role_of("r", "bob").await, Err(Error::NoSuchRole));
        // A row that a removal did not see is nobody's.
        let at = accounts::row("o", "r");
        accounts.remove("alice", &gate.buckets).await.unwrap();
        assert_eq!(accounts.any_role("r").await, Err(Error::NoSuchRole));
        let again = crate::rados::Change::default().setting(&at, denc::Encode::to_bytes(&made));
        crate::rados::Pool::change(&pool, USERS, again).await.unwrap();
        pool.pass(Duration::from_secs(1));
        accounts.create("alice", "").await.unwrap();
        assert_eq!(accounts.role_of("r", "alice").await, Err(Error::NoSuchRole));
        accounts.remove_role("r", |_| Ok(())).await.unwrap();
        // The name is not the later user's, either.
        assert_eq!(create("r", TRUST, 3600).await, Err(Error::RoleNameHeld));
        accounts
            .create_role("r", "alice", TRUST, 3600, true)
            .await
            .unwrap();
        assert_ne!(accounts.role_of("r", "alice").await.unwrap().id, made.id);
    })
    .unwrap();
}

#[test]
fn a_name_stays_its_owners() {
    io::task::block_on(async {
        let pool = Fake::new(13);
        let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
        let create = async |name: &str, owner: &str, force| {
            let made = accounts.create_role(name, owner, TRUST, 3600, force).await;
            made.map(drop)
        };
        let names = async |user: &str| -> Vec<String> {
            let roles = accounts.roles_of(user).await.unwrap();
            roles.into_iter().map(|r| r.name).collect()
        };
        create("r", "alice", false).await.unwrap();
        create("b", "bob", false).await.unwrap();
        assert_eq!(accounts.missing_role(["r", "b"]).await, Ok(None));
        accounts.remove_role("r", |_| Ok(())).await.unwrap();
        assert_eq!(accounts.missing_role(["b", "r"]).await, Ok(Some("r")));
        assert_eq!(create("r", "bob", false).await, Err(Error::RoleNameHeld));
        create("r", "alice", false).await.unwrap();
        accounts.remove_role("r", |_| Ok(())).await.unwrap();
        create("r", "bob", true).await.unwrap();
        assert_eq!(create("r", "alice", true).await, Err(Error::RoleExists));
        assert_eq!(
            (names("alice").await, names("bob").await),
            (vec![], vec!["b".into(), "r".into()])
        );
        // A row that cannot be read hides no other, and goes with nobody.
        let at = accounts::row("o", "b");
        let odd = crate::rados::Change::default().setting(&at, "odd".into());
        crate::rados::Pool::change(&pool, USERS, odd).await.unwrap();
        assert_eq!(names("bob").await, ["r"]);
        assert_eq!(create("b", "alice", true).await, Err(Error::RoleExists));
        // Who is removed takes what is his.
        accounts.remove("alice", &gate.buckets).await.unwrap();
        assert_eq!(accounts.role_names().await.unwrap(), ["b", "r"]);
        accounts.remove("bob", &gate.buckets).await.unwrap();
        assert_eq!(accounts.role_names().await.unwrap(), ["b"]);
    })
    .unwrap();
}

#[test]
fn names_of_one_user_have_a_bound() {
    io::task::block_on(async {
        let pool = Fake::new(14);
        let accounts = accounts_of(&pool).await;
        let create = async |name: String, owner: &str| {
            let made = accounts.create_role(&name, owner, TRUST, 3600, false).await;
            made.map(drop)
        };
        for n in 0..100 {
            create(format!("r{n}"), "alice").await.unwrap();
        }
        let one_more = create("more".into(), "alice").await;
        assert!(matches!(one_more, Err(Error::Invalid(_))), "{one_more:?}");
        create("more".into(), "bob").await.unwrap();
        assert_eq!(accounts.roles_of("alice").await.unwrap().len(), 100);
        accounts.remove_role("r7", |_| Ok(())).await.unwrap();
        // 900 names that she had: with those of her roles as many as there may be.
        let had = (0..900).fold(crate::rados::Change::default(), |change, n| {
            change.setting(&accounts::row("palice\0", &format!("had{n}")), "0".into())
        });
        crate::rados::Pool::change(&pool, USERS, had).await.unwrap();
        let one_more = create("new".into(), "alice").await;
        assert!(matches!(one_more, Err(Error::Invalid(_))), "{one_more:?}");
        create("r7".into(), "alice").await.unwrap();
    })
    .unwrap();
}

#[test]
fn policies_of_a_role_have_bounds() {
    io::task::block_on(async {
        let pool = Fake::new(8);
        let accounts = accounts_of(&pool).await;
        accounts
            .create_role("r", "alice", TRUST, 3600, false)
            .await
            .unwrap();
        let put = async |name: &str, text: &str| -> Result<()> {
            let changed = accounts
                .change_role("r", |role| role.put_policy(name, text))
                .await;
            changed.map(drop)
        };
        let good = allowing("s3:GetObject", "*");
        let large = good.replace(
            "{\"Effect",
            &format!("{{\"Sid\": \"{}\", \"Effect", "s".repeat(11 << 10)),
        );
        for (name, text) in [
            ("a/b", good.as_str()),
            ("p", "{}"),
            ("p", TRUST),
            ("p", allowing("sts:AssumeRole", "*").as_str()),
            ("p", allowing("s3:GetObject", "arn:aws:iam:::role/r").as_str()),
            ("p", large.as_str()),
        ] {
            assert!(put(name, text).await.is_err(), "{name} {text}");
        }
        for n in 0..20 {
            put(&format!("p{n}"), &good).await.unwrap();
        }
        put("p0", &good).await.unwrap();
        assert!(put("p20", &good).await.is_err(), "one more");
        assert_eq!(accounts.any_role("r").await.unwrap().policies.len(), 20);
    })
    .unwrap();
}

fn claim(policy: &str) -> Claim {
    Claim {
        role: "r".into(),
        role_id: "AROAX".into(),
        owner: "alice".into(),
        name: "se".into(),
        until: 1000,
        policy: policy.into(),
    }
}

#[test]
fn tokens_are_good_with_their_key_at_their_cluster_until_they_end() {
    let clock = Fake::new(9).clock();
    let (key, other) = (Key::random(&clock), Key::random(&clock));
    let (made, second) = (
        session::make(&key, &claim(""), &clock).unwrap(),
        session::make(&key, &claim(""), &clock).unwrap(),
    );
    let open = |key: &Key, access: &str, token: &str, now| session::open(key, access, token, now).unwrap();
    assert!(session::is_temporary(&made.access) && made.access != second.access);
    assert_eq!(session::secret(&key, &made.access), made.secret);
    assert_ne!(session::secret(&other, &made.access), made.secret);
    assert_ne!(second.secret, made.secret);
    let (access, token) = (made.access.as_str(), made.token.as_str());
    assert_eq!(open(&key, access, token, 999), Opened::Good(claim("")));
    assert_eq!(open(&key, access, token, 1000), Opened::Ended);
    // Another cluster's, and another session's.
    assert_eq!(open(&other, access, token, 0), Opened::Bad);
    assert_eq!(open(&key, &second.access, token, 0), Opened::Bad);
    assert_eq!(open(&key, access, &second.token, 0), Opened::Bad);
    for cut in 0..token.len() {
        assert_eq!(open(&key, access, &token[..cut], 0), Opened::Bad, "{cut}");
    }
    // Each character changed: the last has bits that the decoder wants to be zero.
    for at in 0..token.len() {
        let mut forged = token.as_bytes().to_vec();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(open(&key, access, &forged, 0), Opened::Bad, "{at}");
    }
    for bad in ["", "AQ", "!", &"A".repeat(9 << 10), &format!("{token}AAAA")] {
        assert_eq!(open(&key, access, bad, 0), Opened::Bad, "{bad}");
    }
}

#[test]
fn gateways_seal_with_the_same() {
    io::task::block_on(async {
        let pool = Fake::new(10);
        let accounts = accounts_of(&pool).await;
        let other = Accounts::new(pool.clone(), pool.clock());
        assert!(
            accounts.key_or_sealing("ASIAX").await.unwrap().1.is_none(),
            "made unasked"
        );
        let (one, second) = tokio::join!(accounts.sealing(), other.sealing());
        let (one, second) = (one.unwrap(), second.unwrap());
        assert!(one == second);
        assert!(other.key_or_sealing("ASIAX").await.unwrap().1 == Some(one));
        let own = accounts.keys("alice").await.unwrap().remove(0);
        let seen = other.key_or_sealing(&own.access).await.unwrap().0;
        assert_eq!(seen, Some(own));
    })
    .unwrap();
}

#[test]
fn a_session_does_what_its_policies_let_it_and_no_more() {
    io::task::block_on(async {
        let pool = Fake::new(11);
        let accounts = accounts_of(&pool).await;
        accounts
            .create_role("r", "alice", TRUST, 3600, false)
            .await
            .unwrap();
        let mut role = accounts.role_of("r", "alice").await.unwrap();
        let asked = |action, key| Request {
            action,
            bucket: "b",
            key: Some(key),
            user: Some("assumed-role/r/se"),
            values: BTreeMap::new(),
            settled: &[],
        };
        let (get, put) = (asked(Action::GetObject, "k"), asked(Action::PutObject, "k"));
        let other = asked(Action::GetObject, "x");
        let may = |role: &_, policy: &str| {
            let session = Session::new(role, &claim(policy));
            [&get, &put, &other].map(|asked| session.allows(asked))
        };
        assert_eq!(may(&role, ""), [false; 3], "without policies");
        assert_eq!(
            may(&role, &allowing("*", "*")),
            [false; 3],
            "a session's policy gives nothing"
        );
        role.put_policy("read", &allowing("s3:GetObject", "arn:aws:s3:::b/*"))
            .unwrap();
        assert_eq!(may(&role, ""), [true, false, true]);
        assert_eq!(
            may(&role, &allowing("*", "*")),
            [true, false, true],
            "it does not widen"
        );
        assert_eq!(
            may(&role, &allowing("*", "arn:aws:s3:::b/k")),
            [true, false, false]
        );
        assert_eq!(may(&role, &allowing("s3:PutObject", "*")), [false; 3]);
        assert_eq!(may(&role, "no policy"), [false; 3]);
        let deny = allowing("s3:GetObject", "arn:aws:s3:::b/x").replace("Allow", "Deny");
        role.put_policy("deny", &deny).unwrap();
        assert_eq!(may(&role, ""), [true, false, false]);
        role.policies.insert("later".into(), "of a newer program".into());
        assert_eq!(may(&role, ""), [false; 3]);
    })
    .unwrap();
}

#[test]
fn capabilities_are_of_the_user_who_was_there() {
    io::task::block_on(async {
        let pool = Fake::new(12);
        let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
        let none = accounts.caps("alice").await.unwrap();
        assert!(!none.reads_roles() && !none.writes_roles());
        let read = accounts.change_caps("alice", "roles=read", true).await.unwrap();
        assert!(read.reads_roles() && !read.writes_roles());
        let all = accounts.change_caps("alice", "roles=*", true).await.unwrap();
        assert_eq!(
            (all.text().as_str(), accounts.caps("alice").await.unwrap()),
            ("roles=*", all)
        );
        let less = accounts.change_caps("alice", "roles=write", false).await.unwrap();
        assert_eq!(less.text(), "roles=read");
        let at = accounts::row("z", "alice");
        accounts.remove("alice", &gate.buckets).await.unwrap();
        assert_eq!(accounts.caps("alice").await, Err(Error::NoSuchUser));
        let left = crate::rados::Change::default().setting(&at, denc::Encode::to_bytes(&all));
        crate::rados::Pool::change(&pool, USERS, left).await.unwrap();
        pool.pass(Duration::from_secs(1));
        accounts.create("alice", "").await.unwrap();
        assert!(!accounts.caps("alice").await.unwrap().reads_roles());
    })
    .unwrap();
}

#[test]
fn who_knows_of_sessions_of_roles_alone_takes_no_other() {
    let own = Claim::of_user("u", "AK", 5);
    assert!(own.is_of_user() && !claim("").is_of_user());
    for (of, version) in [(own, 2), (claim(""), 1)] {
        let bytes = denc::Encode::to_bytes(&of);
        assert_eq!(bytes[..2], [version, version]);
        assert_eq!(<Claim as denc::Decode>::from_bytes(&bytes), Ok(of));
    }
}

#[test]
fn keys_are_set_aside_and_taken_again() {
    io::task::block_on(async {
        let pool = Fake::new(13);
        let accounts = accounts_of(&pool).await;
        let key = accounts.keys("alice").await.unwrap().remove(0);
        let at = accounts::row("k", &key.access);
        let version = |pool: &Fake| pool.lock().objects[USERS].omap[&at][0];
        assert!(key.active && version(&pool) == 1);
        let missing = Err(Error::NoSuchAccessKey);
        assert_eq!(accounts.set_key_active("bob", &key.access, false).await, missing);
        assert_eq!(accounts.remove_key_of("bob", &key.access).await, missing);
        accounts
            .set_key_active("alice", &key.access, false)
            .await
            .unwrap();
        // Who does not know of it refuses the key.
        assert_eq!(version(&pool), 2);
        let aside = accounts.key(&key.access).await.unwrap().unwrap();
        assert!(!aside.active && aside.secret == key.secret);
        accounts.set_key_active("alice", &key.access, true).await.unwrap();
        assert_eq!(accounts.key(&key.access).await.unwrap(), Some(key.clone()));
        // One that is set aside goes with its user, and on its own.
        accounts
            .set_key_active("alice", &key.access, false)
            .await
            .unwrap();
        accounts.remove_key_of("alice", &key.access).await.unwrap();
        assert!(accounts.keys("alice").await.unwrap().is_empty());
    })
    .unwrap();
}

#[test]
fn a_key_that_is_made_while_its_user_is_removed_is_none() {
    io::task::block_on(async {
        let mut late = 0;
        // The removal is held at each of its operations.
        for held in 1..20 {
            let pool = Fake::new(held);
            let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
            let remover = Accounts::new(gate.pool.clone(), pool.clock());
            pool.lock().held.insert(1, held);
            let makes = async {
                for _ in 0..200 {
                    io::task::yield_now().await;
                }
                let made = accounts.create_key("bob").await;
                pool.lock().held.remove(&1);
                made
            };
            let (removed, made) = tokio::join!(remover.remove("bob", &gate.buckets), makes);
            removed.unwrap();
            assert!(accounts.keys("bob").await.unwrap().is_empty(), "{held}");
            if let Ok(key) = made {
                late += 1;
                assert_eq!(accounts.key(&key.access).await.unwrap(), None, "{held}");
            }
            assert_eq!(accounts.keys("alice").await.unwrap().len(), 1);
        }
        assert!(late > 3, "{late}");
    })
    .unwrap();
}

#[test]
fn who_is_made_anew_has_no_keys_of_before() {
    io::task::block_on(async {
        let pool = Fake::new(15);
        let accounts = accounts_of(&pool).await;
        let project = "0123456789abcdef0123456789abcdef";
        accounts.ensure_user(project, "demo", true).await.unwrap();
        for name in ["bob", project] {
            // As where a removal is cut off.
            let key = accounts.create_key(name).await.unwrap();
            let gone = crate::rados::Change::default().unsetting(&accounts::row("u", name));
            crate::rados::Pool::change(&pool, USERS, gone).await.unwrap();
            match name == project {
                true => accounts.ensure_user(name, "demo", true).await.unwrap(),
                false => drop(accounts.create_without_key(name, "").await.unwrap()),
            }
            assert_eq!(accounts.key(&key.access).await.unwrap(), None);
            assert!(accounts.keys(name).await.unwrap().is_empty());
        }
    })
    .unwrap();
}

#[test]
fn users_without_keys_and_in_pages() {
    io::task::block_on(async {
        let pool = Fake::new(14);
        let accounts = accounts_of(&pool).await;
        let made = accounts.create_without_key("zoe", "").await.unwrap();
        assert_eq!(accounts.user("zoe").await.unwrap(), made);
        assert!(accounts.keys("zoe").await.unwrap().is_empty());
        assert_eq!(
            accounts.create_without_key("zoe", "").await,
            Err(Error::UserExists)
        );
        let (all, more) = accounts.users_after("", 100).await.unwrap();
        assert!(!more && all == accounts.users().await.unwrap());
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let (page, more) = accounts.users_after(&after, 1).await.unwrap();
            seen.extend(page);
            if !more {
                break;
            }
            after = seen.last().unwrap().id.clone();
        }
        assert_eq!(seen, all);
    })
    .unwrap();
}
