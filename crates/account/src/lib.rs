//! Who keeps bytes has charged them: the accounts of one role's memory budget.
//!
//! Vocabulary: an [`Account`] is what one kind of bytes may take and takes now (requests, replies, PG logs); an
//! [`Accountant`] holds the accounts of one role, whose bounds together are its budget; a [`Charge`] is bytes on an account,
//! given back when it is dropped.
//!
//! Invariants: the bounds of a role's accounts never exceed its budget ([`Accountant::open`]). No account borrows from
//! another role's, so that what one role waits for is never held by another. One thread changes an account, its role's own,
//! by plain loads and stores; anybody may read.
//!
//! Not here: who waits at a bound, and in which order (`net`), how logs and caches shrink (`osd`, `pg`).

use metrics::{Counter, Gauge, Registry, spec};
use serde_json::{Map, Value, json};
use std::sync::Arc;

metrics::table! {
    /// One kind of bytes, in the form of Ceph's throttles.
    pub struct Account {
        val: Gauge = spec("Bytes charged now").bytes();
        max: Gauge = spec("Bytes that may be charged").bytes();
        items: Gauge = spec("What they are charged for");
        peak: Gauge = spec("The most bytes that were charged at once").bytes();
        wait: Counter = spec("Times that somebody had to wait for room");
    }
}

impl Account {
    /// One without an accountant, for tests and tools.
    pub fn alone(bytes_max: u64) -> Arc<Self> {
        let account = Self::default();
        account.max.set(bytes_max);
        Arc::new(account)
    }

    pub fn bytes(&self) -> u64 {
        self.val.get()
    }

    pub fn bytes_max(&self) -> u64 {
        self.max.get()
    }

    pub fn has_room(&self, bytes: u64) -> bool {
        self.bytes() + bytes <= self.bytes_max()
    }

    /// Charged without a guard; [`Account::give`] is the caller's duty.
    pub fn take(&self, bytes: u64) {
        self.set(self.bytes() + bytes);
    }

    pub fn give(&self, bytes: u64) {
        debug_assert!(self.bytes() >= bytes, "more is given back than was charged");
        self.val.set(self.bytes().saturating_sub(bytes));
    }

    /// What it is charged with, where its owner adds it up.
    pub fn set(&self, bytes: u64) {
        self.val.set(bytes);
        if bytes > self.peak.get() {
            self.peak.set(bytes);
        }
    }

    pub fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        self.take(bytes);
        self.items.set(self.items.get() + 1);
        Charge {
            account: self.clone(),
            bytes,
        }
    }
}

/// Bytes on an account until it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give(self.bytes);
        self.account.items.set(self.account.items.get().saturating_sub(1));
    }
}

metrics::table! {
    /// The logger `memory`: a role's budget, of which a process is the sum.
    pub struct Budget {
        budget: Gauge = spec("Bytes that this daemon may keep").bytes();
        charged: Gauge = spec("Bytes that are charged to its accounts").bytes();
    }
}

/// The accounts of one role.
#[derive(Debug)]
pub struct Accountant {
    budget: u64,
    /// Of it, what was given to accounts of their own.
    given: u64,
    shown: Arc<Budget>,
    /// By their names in `dump_mempools`.
    accounts: Vec<(&'static str, Arc<Account>)>,
}

impl Accountant {
    pub fn new(budget: u64, registry: &Registry) -> Self {
        let shown: Arc<Budget> = registry.make("memory");
        shown.budget.set(budget);
        Self {
            budget,
            given: 0,
            shown,
            accounts: Vec::new(),
        }
    }

    /// Shows what is charged now.
    pub fn measure(&self) {
        self.shown.charged.set(self.bytes());
    }

    /// One more account, shown as the logger `throttle-NAME`. What the others leave of the budget bounds it.
    pub fn open(&mut self, name: &'static str, bytes_max: u64, registry: &Registry) -> Arc<Account> {
        let bytes_max = bytes_max.min(self.budget.saturating_sub(self.given));
        self.given += bytes_max;
        let account = Account::alone(bytes_max);
        registry.add(&format!("throttle-{name}"), account.clone());
        self.accounts.push((name, account.clone()));
        account
    }

    /// An account whose bytes come off the bounds of others: it adds nothing to what may be charged in all.
    pub fn open_within(&mut self, name: &'static str, bytes_max: u64, registry: &Registry) -> Arc<Account> {
        let account = Account::alone(bytes_max);
        registry.add(&format!("throttle-{name}"), account.clone());
        self.accounts.push((name, account.clone()));
        account
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// All that is charged now.
    pub fn bytes(&self) -> u64 {
        self.accounts.iter().map(|(_, a)| a.bytes()).sum()
    }

    /// `dump_mempools`, in Ceph's form, with the bounds beside.
    pub fn mempools(&self) -> Value {
        let one =
            |a: &Account| json!({"items": a.items.get(), "bytes": a.bytes(), "bytes_max": a.bytes_max()});
        let pools: Map<String, Value> = self
            .accounts
            .iter()
            .map(|(n, a)| (n.to_string(), one(a)))
            .collect();
        let items: u64 = self.accounts.iter().map(|(_, a)| a.items.get()).sum();
        json!({"mempool": {
            "by_pool": pools,
            "total": {"items": items, "bytes": self.bytes(), "bytes_max": self.budget},
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_given_back() {
        let a = Account::alone(100);
        let (first, second) = (a.charge(60), a.charge(30));
        assert!(a.has_room(10) && !a.has_room(11));
        drop(first);
        assert_eq!((a.bytes(), a.peak.get(), a.items.get()), (30, 90, 1));
        drop(second);
        assert_eq!((a.bytes(), a.items.get()), (0, 0));
    }

    #[test]
    fn what_comes_off_other_accounts_leaves_the_budget_to_the_next() {
        let registry = Registry::default();
        let mut all = Accountant::new(100, &registry);
        let requests = all.open("mon_client_bytes", 60, &registry);
        let connections = all.open_within("mon_connection", 60, &registry);
        let next = all.open("mgr_client_bytes", 40, &registry);
        assert_eq!(
            (requests.bytes_max(), connections.bytes_max(), next.bytes_max()),
            (60, 60, 40)
        );
    }

    #[test]
    fn bounds_never_exceed_the_budget() {
        let registry = Registry::default();
        let mut all = Accountant::new(100, &registry);
        let logs = all.open("osd_pglog", 70, &registry);
        let rest = all.open("osd", 70, &registry);
        assert_eq!((logs.bytes_max(), rest.bytes_max()), (70, 30));
        logs.set(50);
        let _one = rest.charge(5);
        let dump = all.mempools();
        assert_eq!(dump["mempool"]["by_pool"]["osd_pglog"]["bytes"], 50);
        assert_eq!(dump["mempool"]["total"]["bytes"], 55);
        all.measure();
        let names: Vec<String> = registry.tables().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["memory", "throttle-osd", "throttle-osd_pglog"]);
        assert_eq!((all.shown.budget.get(), all.shown.charged.get()), (100, 55));
    }
}
