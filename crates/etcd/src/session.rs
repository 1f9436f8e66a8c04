//! Transactions that happen once, although the answer to one may be lost and it is sent again.
//!
//! Each process has a key of its own, `SESSION/<lease>`, whose value counts its transactions. Number n compares the
//! value with n-1 and sets it to n beside the caller's operations, so of all copies that were sent of it only one can
//! be applied, and the value tells afterwards whether one was. Before a conflict is reported of a transaction that
//! was sent more than once, the number is used up, so that no copy still under way can be applied later.
//!
//! Invariant: one transaction of a process at a time. Bounds: the session's lease ends [`SESSION_TTL`] after the last
//! transaction that renewed it; a transaction in doubt for longer ends as [`Error::Unknown`].

use crate::conn::{Conn, Failed};
use crate::keyspace::Keyspace;
use etcd_client::{Compare as EtcdCompare, CompareOp, PutOptions, Txn as EtcdTxn, TxnOp as EtcdOp};
use etcd_client::{TxnOpResponse, TxnResponse};
use metastore::kv::{Compare, Error, LeaseId, Result, TXN_COMPARES_MAX, TXN_OPS_MAX, Txn, TxnOp, TxnOutcome};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SESSION_TTL: Duration = Duration::from_secs(600);
/// etcd's limit with its default settings (`--max-txn-ops`).
const ETCD_OPS: usize = 128;
/// Operations that go as they are, beside the session's own.
const FLAT_OPS_MAX: usize = 120;
/// Operations in each of the inner transactions of a larger one.
const GROUP_OPS: usize = 96;
// Groups and the session's operation, or the comparisons and the session's, beside the operations of one group.
const _: () = assert!(TXN_OPS_MAX.div_ceil(GROUP_OPS) + 1 + GROUP_OPS <= ETCD_OPS);
const _: () = assert!(TXN_COMPARES_MAX + 1 + GROUP_OPS <= ETCD_OPS && FLAT_OPS_MAX < ETCD_OPS);
/// The session's lease is renewed when it is older than this.
const RENEW_AFTER: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct Session {
    open: Option<Open>,
}

struct Open {
    lease: i64,
    key: Vec<u8>,
    /// Number of the last transaction.
    number: u64,
    renewed: Duration,
}

/// What the session's key says after a transaction that was not applied now.
enum Found {
    /// Not applied: this number is still free.
    Before,
    /// Applied earlier, at this revision.
    Applied(u64),
    Gone,
}

impl Session {
    pub async fn txn(&mut self, conn: &Conn, space: &Keyspace, txn: &Txn) -> Result<TxnOutcome> {
        loop {
            let mut open = self.take_open(conn, space).await?;
            let done = open.run(conn, space, txn).await;
            match done {
                // Nothing was sent that could have been applied.
                Ok(None) => continue,
                Ok(Some(outcome)) => {
                    self.open = Some(open);
                    return Ok(outcome);
                }
                // A new session next time: this one's number is in doubt.
                Err(e @ Error::Unknown(_)) => return Err(e),
                Err(e) => {
                    self.open = Some(open);
                    return Err(e);
                }
            }
        }
    }

    async fn take_open(&mut self, conn: &Conn, space: &Keyspace) -> Result<Open> {
        let now = conn.clock().monotonic();
        if let Some(mut open) = self.open.take() {
            if now - open.renewed < RENEW_AFTER {
                return Ok(open);
            }
            let lease = open.lease;
            let alive = conn
                .call(async |mut c| c.lease_keep_alive(lease).await.map(|_| ()))
                .await?;
            if alive.is_ok() {
                open.renewed = now;
                return Ok(open);
            }
        }
        let ttl = SESSION_TTL.as_secs() as i64;
        let lease = conn
            .call(async |mut c| c.lease_grant(ttl, None).await)
            .await?
            .map_err(Failed::into_error)?
            .id();
        let open = Open {
            lease,
            key: space.session(lease),
            number: 0,
            renewed: now,
        };
        // A copy of this that comes late finds the key there and does nothing.
        let absent = EtcdCompare::create_revision(open.key.clone(), CompareOp::Equal, 0);
        let begin = EtcdTxn::new().when([absent]).and_then([open.put(0)]);
        conn.call(async |mut c| c.txn(begin.clone()).await)
            .await?
            .map_err(Failed::into_error)?;
        Ok(open)
    }
}

impl Open {
    fn put(&self, number: u64) -> EtcdOp {
        let leased = PutOptions::new().with_lease(self.lease);
        EtcdOp::put(self.key.clone(), number.to_string(), Some(leased))
    }

    fn is(&self, number: u64) -> EtcdCompare {
        EtcdCompare::value(self.key.clone(), CompareOp::Equal, number.to_string())
    }

    fn guarded(&self, mut compares: Vec<EtcdCompare>, mut ops: Vec<EtcdOp>) -> EtcdTxn {
        compares.push(self.is(self.number));
        ops.push(self.put(self.number + 1));
        EtcdTxn::new()
            .when(compares)
            .and_then(ops)
            .or_else([EtcdOp::get(self.key.clone(), None)])
    }

    /// None: the session had ended, and nothing was applied.
    async fn run(&mut self, conn: &Conn, space: &Keyspace, txn: &Txn) -> Result<Option<TxnOutcome>> {
        let compares = txn.compares.iter().map(|c| space.compare(c)).collect();
        let ops = space.ops(&txn.ops);
        let request = self.guarded(compares, ops);
        let sent = AtomicU32::new(0);
        let answer = self.ask(conn, &request, &sent).await;
        let in_doubt = sent.load(Ordering::Relaxed) > 1;
        let (revision, answer) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(failed)) if !in_doubt => return Err(txn_error(failed, txn)),
            Ok(Err(failed)) => return Err(Error::Unknown(failed.into_error().to_string())),
            Err(e) if sent.load(Ordering::Relaxed) > 0 => return Err(Error::Unknown(e.to_string())),
            Err(e) => return Err(e),
        };
        if answer.succeeded() {
            self.number += 1;
            return Ok(Some(TxnOutcome::Committed(revision)));
        }
        match self.found(&answer)? {
            Found::Applied(revision) => {
                self.number += 1;
                Ok(Some(TxnOutcome::Committed(revision)))
            }
            Found::Gone if in_doubt => Err(Error::Unknown("etcd was away for too long".into())),
            Found::Gone => Ok(None),
            Found::Before if in_doubt => self.use_up(conn).await.map(Some),
            Found::Before => Ok(Some(TxnOutcome::Conflict)),
        }
    }

    /// Takes the number of a transaction that met a conflict, so that no copy of it can be applied any more.
    async fn use_up(&mut self, conn: &Conn) -> Result<TxnOutcome> {
        let request = self.guarded(Vec::new(), Vec::new());
        let sent = AtomicU32::new(0);
        let (_, answer) = self
            .ask(conn, &request, &sent)
            .await
            .and_then(|r| r.map_err(Failed::into_error))
            .map_err(|e| Error::Unknown(e.to_string()))?;
        self.number += 1;
        // Applied by whom? A copy of the transaction changes more than the session's key; either way the number is
        // taken, and only the revision of what was sent here is known.
        match (answer.succeeded(), sent.load(Ordering::Relaxed)) {
            (true, _) => Ok(TxnOutcome::Conflict),
            (false, 1) => match self.found_after(&answer)? {
                Some(revision) => Ok(TxnOutcome::Committed(revision)),
                None => Err(Error::Unknown("etcd was away for too long".into())),
            },
            (false, _) => Err(Error::Unknown("several copies were under way".into())),
        }
    }

    async fn ask(
        &self,
        conn: &Conn,
        request: &EtcdTxn,
        sent: &AtomicU32,
    ) -> Result<std::result::Result<(u64, TxnResponse), Failed>> {
        let seen = conn.seen();
        let answer = conn
            .call(async |mut c| {
                sent.fetch_add(1, Ordering::Relaxed);
                c.txn(request.clone()).await
            })
            .await?;
        Ok(match answer {
            Ok(answer) => Ok((conn.note(answer.header(), seen)?, answer)),
            Err(failed) => Err(failed),
        })
    }

    fn session_key(&self, answer: &TxnResponse) -> Option<(u64, u64)> {
        let Some(TxnOpResponse::Get(got)) = answer.op_responses().into_iter().next() else {
            return None;
        };
        let kv = got.kvs().first()?;
        let number = kv.value_str().ok()?.parse().ok()?;
        Some((number, kv.mod_revision() as u64))
    }

    fn found(&self, answer: &TxnResponse) -> Result<Found> {
        match self.session_key(answer) {
            None => Ok(Found::Gone),
            Some((n, _)) if n == self.number => Ok(Found::Before),
            Some((n, revision)) if n == self.number + 1 => Ok(Found::Applied(revision)),
            Some((n, _)) => Err(Error::Unknown(format!(
                "the session's number is {n}, not {}",
                self.number
            ))),
        }
    }

    /// The revision at which a copy took the number that `self.number` counts already.
    fn found_after(&self, answer: &TxnResponse) -> Result<Option<u64>> {
        match self.session_key(answer) {
            None => Ok(None),
            Some((n, revision)) if n == self.number => Ok(Some(revision)),
            Some((n, _)) => Err(Error::Unknown(format!(
                "the session's number is {n}, not {}",
                self.number
            ))),
        }
    }
}

pub(crate) fn txn_error(failed: Failed, txn: &Txn) -> Error {
    let lease = txn.ops.iter().find_map(|op| match op {
        TxnOp::Put { lease, .. } => *lease,
        TxnOp::Delete { .. } => None,
    });
    match (failed, lease) {
        (Failed::NoLease, Some(lease)) => Error::NoLease(lease),
        (failed, _) => failed.into_error(),
    }
}

impl Keyspace {
    pub fn compare(&self, c: &Compare) -> EtcdCompare {
        match c {
            Compare::Revision { key, revision } => {
                EtcdCompare::mod_revision(self.key(key), CompareOp::Equal, *revision as i64)
            }
            Compare::Value { key, value } => {
                EtcdCompare::value(self.key(key), CompareOp::Equal, value.to_vec())
            }
        }
    }

    /// The operations of one transaction. etcd counts those that stand side by side and takes that off what a
    /// transaction among them may hold: so many go as transactions in the transaction, all or none all the same.
    pub fn ops(&self, ops: &[TxnOp]) -> Vec<EtcdOp> {
        let plain = |ops: &[TxnOp]| ops.iter().map(|op| self.op(op)).collect::<Vec<_>>();
        if ops.len() <= FLAT_OPS_MAX {
            return plain(ops);
        }
        ops.chunks(GROUP_OPS)
            .map(|group| EtcdOp::txn(EtcdTxn::new().and_then(plain(group))))
            .collect()
    }

    fn op(&self, op: &TxnOp) -> EtcdOp {
        match op {
            TxnOp::Put { key, value, lease } => {
                let options = lease.map(|id: LeaseId| PutOptions::new().with_lease(id as i64));
                EtcdOp::put(self.key(key), value.to_vec(), options)
            }
            TxnOp::Delete { key } => EtcdOp::delete(self.key(key), None),
        }
    }
}
