//! `skep cluster move-to-etcd`: the cluster state of a stopped store goes from its file into etcd.
//!
//! Order: all rows but `version` and `cluster`; then those two, in one transaction, which makes it a cluster; then everything
//! is read back and compared; then the settings name etcd (a layout that earlier programs refuse); then the file gets
//! another name. Cut off anywhere it can be run again: before the settings nothing has changed for the
//! store, after them the start no longer looks at the file.

use crate::platform::Platform;
use crate::state::{bad, embedded_store, etcd_store};
use crate::{DataDir, Error, EtcdSettings, FORMAT, OsdSlot};
use cluster::{bucket_name, keys};
use metastore::kv::{Compare, Range, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnOp, TxnOutcome};
use metastore::{ClusterHandle, Kv, Metastore};
use std::net::IpAddr;
use types::Uuid;

/// What was moved.
#[derive(Debug)]
pub struct Moved {
    pub fsid: Uuid,
    pub keys: usize,
    pub bytes: usize,
}

pub async fn move_to_etcd(
    dir: &DataDir,
    etcd: EtcdSettings,
    bind: Option<IpAddr>,
    host: Option<&str>,
    progress: &dyn Fn(&str),
) -> Result<Moved, Error> {
    let _lock = dir.lock()?;
    let mut settings = dir
        .settings()?
        .ok_or_else(|| Error::NoStore(dir.root().to_path_buf()))?;
    let platform = Platform::system();
    if let Some(old) = &settings.etcd {
        return Err(Error::Usage(format!(
            "the cluster state of this store is in etcd already, at {}",
            old.endpoints.join(", ")
        )));
    }
    let from = embedded_store(dir, &platform)?;
    let cluster = ClusterHandle::open(from.clone(), platform.clock.clone())
        .await
        .map_err(bad)?
        .ok_or_else(|| Error::Cluster("there is no cluster in this store yet".into()))?;
    let fsid = cluster.state().fsid;
    let to = etcd_store(&etcd, &platform, progress).await?;
    progress("copying");
    let (rows, _) = from.range(Range::prefix("")).await.map_err(bad)?;
    copy(&*to, &rows).await?;
    progress("comparing");
    let (copied, _) = to.range(Range::prefix("")).await.map_err(bad)?;
    let plain = |rows: &[Kv]| -> Vec<(String, bytes::Bytes)> {
        let durable = rows.iter().filter(|kv| !kv.key.starts_with(keys::LIVE));
        durable.map(|kv| (kv.key.clone(), kv.value.clone())).collect()
    };
    if plain(&rows) != plain(&copied) {
        return Err(Error::Cluster(
            "what etcd holds now is not what was copied: does another program write there?".into(),
        ));
    }
    let map = cluster.osdmap();
    settings.slots = settings
        .osd_ids()
        .into_iter()
        .map(|id| OsdSlot {
            uuid: map.osd(id).map(|o| o.uuid).unwrap_or_default().to_string(),
            id: Some(id),
        })
        .collect();
    settings.osds = settings.slots.len() as u32;
    settings.removed.clear();
    // Clients know the monitor by its name and address.
    settings.mon = Some(settings.mon_name());
    settings.host = Some(bucket_name(
        host.or(settings.host.as_deref()).unwrap_or(&platform.hostname),
    ));
    settings.bind = bind.unwrap_or(settings.bind);
    settings.format = FORMAT;
    settings.etcd = Some(etcd);
    dir.write_settings(&settings)?;
    let left = dir.moved_state_path();
    io::files::rename(&dir.state_path(), &left).map_err(|source| Error::DataDir { path: left, source })?;
    Ok(Moved {
        fsid,
        keys: rows.len(),
        bytes: rows.iter().map(|kv| kv.key.len() + kv.value.len()).sum(),
    })
}

/// Brings all rows over. An earlier attempt's are replaced as long as they made no cluster.
pub(crate) async fn copy(to: &dyn Metastore, rows: &[Kv]) -> Result<(), Error> {
    let is_last = |key: &str| key == keys::VERSION || key == keys::CLUSTER;
    let (there, _) = to.range(Range::prefix("")).await.map_err(bad)?;
    if there.iter().any(|kv| is_last(&kv.key)) {
        // Complete already, or somebody else's: the comparison tells.
        return Ok(());
    }
    let absent = || {
        [keys::VERSION, keys::CLUSTER].map(|key| Compare::Revision {
            key: key.into(),
            revision: 0,
        })
    };
    let put = |kv: &Kv| TxnOp::put(kv.key.clone(), kv.value.clone());
    let mut ops: Vec<TxnOp> = there
        .iter()
        .filter(|old| rows.iter().all(|kv| kv.key != old.key))
        .map(|old| TxnOp::delete(old.key.clone()))
        .collect();
    ops.extend(rows.iter().filter(|kv| !is_last(&kv.key)).map(put));
    let last: Vec<TxnOp> = rows.iter().filter(|kv| is_last(&kv.key)).map(put).collect();
    let mut batches = vec![Txn::default()];
    for op in ops {
        let mut next = Txn {
            compares: absent().into(),
            ops: vec![op],
        };
        let full = batches
            .last()
            .is_none_or(|b| b.ops.len() >= TXN_OPS_MAX || b.bytes() + next.bytes() > TXN_BYTES_MAX);
        match batches.last_mut() {
            Some(batch) if !full => {
                batch.ops.append(&mut next.ops);
                batch.compares = next.compares;
            }
            _ => batches.push(next),
        }
    }
    batches.push(Txn {
        compares: absent().into(),
        ops: last,
    });
    for txn in batches.into_iter().filter(|b| !b.ops.is_empty()) {
        if to.txn(txn).await.map_err(bad)? == TxnOutcome::Conflict {
            return Err(Error::Cluster(
                "another program makes a cluster there just now".into(),
            ));
        }
    }
    Ok(())
}
