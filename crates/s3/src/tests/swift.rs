//! Subusers of Swift: whose they are, and until when a token of theirs may be believed.

use super::Gate;
use crate::accounts::{Accounts, USERS};
use crate::fake::Fake;
use crate::subusers::Access;
use crate::{Error, accounts};

async fn accounts_of(pool: &Fake) -> Accounts<Fake> {
    accounts::ensure(pool, USERS).await.unwrap();
    accounts::ensure(pool, crate::buckets::BUCKETS).await.unwrap();
    Accounts::new(pool.clone(), pool.clock())
}

#[test]
fn projects_become_users_when_they_come() {
    io::task::block_on(async {
        let pool = Fake::new(5);
        let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
        let id = "0123456789abcdef0123456789abcdef";
        let ensure = |create| accounts.ensure_user(id, "demo", create);
        assert_eq!(ensure(false).await, Err(Error::NoSuchUser));
        ensure(true).await.unwrap();
        let made = accounts.user(id).await.unwrap();
        assert_eq!((made.id.as_str(), made.display.as_str()), (id, "demo"));
        assert!(accounts.keys(id).await.unwrap().is_empty());
        for create in [true, false] {
            accounts.ensure_user(id, "renamed", create).await.unwrap();
            assert_eq!(accounts.user(id).await.unwrap(), made);
        }
        accounts.remove(id, &gate.buckets).await.unwrap();
        assert_eq!(ensure(false).await, Err(Error::NoSuchUser));
        assert!(accounts.ensure_user("a/b", "x", true).await.is_err());
    })
    .unwrap();
}

#[test]
fn subusers_are_of_the_user_who_was_there() {
    io::task::block_on(async {
        let pool = Fake::new(3);
        let (accounts, gate) = (accounts_of(&pool).await, Gate::new(&pool, 1));
        for bad in ["alice", "alice:", "alice:a b", ":x", "nobody:x"] {
            assert!(accounts.create_subuser(bad, Access::Full).await.is_err(), "{bad}");
        }
        accounts.create("alice", "").await.unwrap();
        let made = accounts.create_subuser("alice:app", Access::Read).await.unwrap();
        assert!(accounts.create_subuser("alice:app", Access::Full).await.is_err());
        let now = async || accounts.signer("alice", "app").await.unwrap().subuser;
        assert_eq!(now().await, Some(made.clone()));
        // Each change ends tokens of before.
        let changed = accounts.set_access("alice:app", Access::Full).await.unwrap();
        assert!(changed.version != made.version && changed.secret == made.secret);
        let keyed = accounts.new_subuser_key("alice:app").await.unwrap();
        assert!(keyed.version != changed.version && keyed.secret != made.secret);
        assert_eq!(accounts.remove_subuser_key("alice:app").await.unwrap().secret, "");
        // A row that a removal did not see is nobody's.
        let left = crate::rados::Pool::look(
            &pool,
            USERS,
            crate::rados::Look::keys([&b"walice\0app".to_vec().into()]),
        );
        let (row, value) = left.await.unwrap().values.into_iter().next().unwrap();
        accounts
            .change_account("alice", |a| {
                a.meta.insert("temp-url-key".into(), "k".into());
                Ok(())
            })
            .await
            .unwrap();
        accounts.remove("alice", &gate.buckets).await.unwrap();
        assert_eq!(now().await, None);
        assert!(accounts.subusers("alice").await.unwrap().is_empty());
        let again = crate::rados::Change::default().setting(&row, value);
        crate::rados::Pool::change(&pool, USERS, again).await.unwrap();
        pool.pass(std::time::Duration::from_secs(1));
        accounts.create("alice", "").await.unwrap();
        assert_eq!(now().await, None, "it was of the alice before");
        assert!(accounts.account("alice").await.unwrap().meta.is_empty());
        let new = accounts.create_subuser("alice:app", Access::Write).await.unwrap();
        assert_eq!(now().await, Some(new));
        accounts.remove_subuser("alice:app").await.unwrap();
        assert_eq!(now().await, None);
    })
    .unwrap();
}

#[test]
fn gateways_share_what_tokens_are_signed_with() {
    io::task::block_on(async {
        let pool = Fake::new(4);
        let (one, other) = (accounts_of(&pool).await, accounts_of(&pool).await);
        let secret = one.signer("a", "b").await.unwrap().secret;
        assert_eq!(secret.len(), crate::subusers::TOKEN_SECRET_BYTES);
        assert_eq!(other.signer("c", "d").await.unwrap().secret, secret);
        assert_eq!(
            one.change_account("nobody", |_| Ok(())).await,
            Err(Error::NoSuchUser)
        );
    })
    .unwrap();
}
