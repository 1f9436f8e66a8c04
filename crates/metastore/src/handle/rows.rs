//! The store's keys and changes as the cluster's state takes them, and back.

use crate::kv::{Error, Event, Kv, Result, TxnOp};
use cluster::ClusterState;
use cluster::rows::{Row, RowEvent, Write};

/// The state that these keys say; None: they are no cluster's.
pub fn load(rows: &[Kv]) -> Result<Option<ClusterState>> {
    let rows = rows.iter().map(|kv| Row {
        key: &kv.key,
        value: &kv.value,
        revision: kv.revision,
    });
    let rows: Vec<Row> = rows.collect();
    Ok(cluster::load::load(&rows)?)
}

/// What `state` becomes by other writers' commits.
pub fn advance(state: &ClusterState, events: &[Event]) -> Result<ClusterState> {
    let events = events.iter().map(|e| RowEvent {
        key: &e.key,
        value: e.value.as_ref(),
        revision: e.revision,
    });
    let events: Vec<RowEvent> = events.collect();
    Ok(cluster::load::advance(state, &events)?)
}

pub fn op(write: Write) -> TxnOp {
    match write {
        Write::Put { key, value } => TxnOp::put(key, value),
        Write::Delete { key } => TxnOp::delete(key),
    }
}

impl From<cluster::Error> for Error {
    fn from(e: cluster::Error) -> Self {
        match e {
            cluster::Error::BadValue { key, why } => Self::BadValue { key, why },
            cluster::Error::Newer(said) => Self::Open(said),
        }
    }
}
