//! Makes a cluster in a store that holds none.

use super::rows::op;
use crate::kv::{Compare, Error, Metastore, Result, Txn, TxnOutcome};
use cluster::create::{CreateOptions, first_rows};
use cluster::keys;
use io::{Clock, Random};
use types::Utime;

/// Makes the cluster in an empty store, in one transaction. Fails if there is one already.
pub async fn create_cluster(
    store: &dyn Metastore,
    options: &CreateOptions,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<()> {
    let entropy = |buf: &mut [u8]| random.fill(buf);
    let cx = auth::Context {
        now: Utime::from_unix(clock.wall()),
        entropy: &entropy,
    };
    let ops = first_rows(options, &cx)?.into_iter().map(op).collect();
    let absent = |key: &str| Compare::Revision {
        key: key.into(),
        revision: 0,
    };
    let compares = vec![absent(keys::CLUSTER), absent(keys::VERSION)];
    match store.txn(Txn { compares, ops }).await? {
        TxnOutcome::Committed(_) => Ok(()),
        TxnOutcome::Conflict => Err(Error::Open("there is a cluster in this store already".into())),
    }
}
