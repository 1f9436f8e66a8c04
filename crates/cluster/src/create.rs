//! A new cluster: the first maps, keys and settings.

use crate::Result;
use crate::changes::{Change, Changes};
use crate::history::MapHistory;
use crate::keys;
use crate::rows::Write;
use crate::state::{ClusterId, ClusterState};
use auth::{Context, CryptoKey, EntityAuth, KeyServerConfig, SECRET_LEN, ServiceSecrets};
use crush::FailureDomain;
use denc::Encode;
use std::sync::Arc;
use types::monmap::MonMap;
use types::osdmap::NewCluster;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, OsdId, Uuid};

/// Global ids below it are not given to clients.
pub const FIRST_GLOBAL_ID: u64 = 4100;

/// What is fixed when a cluster is made.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    pub fsid: Uuid,
    /// The first monitor's name and addresses.
    pub mon_name: String,
    pub mon_addrs: EntityAddrVec,
    /// What copies are spread over.
    pub failure_domain: FailureDomain,
    /// Ids of OSDs that get a key at once (`osd.N`).
    pub osds: Vec<OsdId>,
    /// First central configuration: section, option, value.
    pub config: Vec<(String, String, String)>,
}

impl CreateOptions {
    /// One machine, one process: copies are spread over OSDs. How many copies a pool has is
    /// decided when it is made (docs/decisions/0010).
    pub fn new(fsid: Uuid, mon_name: &str, mon_addr: EntityAddr) -> Self {
        Self {
            fsid,
            mon_name: mon_name.to_string(),
            mon_addrs: EntityAddrVec::one(mon_addr),
            failure_domain: FailureDomain::Osd,
            osds: Vec::new(),
            config: Vec::new(),
        }
    }
}

/// A fresh entity of the key database.
pub fn new_entity(cx: &Context<'_>, caps: &[(&str, &str)]) -> EntityAuth {
    let key = CryptoKey::new(cx.bytes::<SECRET_LEN>(), cx.now);
    caps.iter().fold(EntityAuth::new(key), |e, (service, text)| {
        e.with_cap(service, text)
    })
}

/// The capabilities of `osd.N`.
pub const OSD_CAPS: [(&str, &str); 3] = [
    ("mgr", "allow profile osd"),
    ("mon", "allow profile osd"),
    ("osd", "allow *"),
];
/// The capabilities of `mds.NAME`, as cephadm gives them: maps, and what is in the pools of file systems.
pub const MDS_CAPS: [(&str, &str); 3] = [
    ("mds", "allow"),
    ("mon", "allow profile mds"),
    ("osd", "allow rw tag cephfs *=*"),
];
/// The capabilities of the object gateways (`client.s3`): they make their pools, and use them.
pub const S3_CAPS: [(&str, &str); 2] = [("mon", "allow rw"), ("osd", "allow rwx")];
const ADMIN_CAPS: [(&str, &str); 4] = [
    ("mds", "allow *"),
    ("mgr", "allow *"),
    ("mon", "allow *"),
    ("osd", "allow *"),
];
const MON_CAPS: [(&str, &str); 1] = [("mon", "allow *")];
const MGR_CAPS: [(&str, &str); 3] = [
    ("mds", "allow *"),
    ("mon", "allow profile mgr"),
    ("osd", "allow *"),
];

/// The rows of a new cluster: no two of them have the same key.
pub fn first_rows(options: &CreateOptions, cx: &Context<'_>) -> Result<Vec<Write>> {
    let (state, mut rows) = first_state(options, cx);
    let (_, more) = state.apply(first_changes(options, cx), cx.now)?;
    rows.retain(|row| more.iter().all(|m| m.key() != row.key()));
    rows.extend(more);
    Ok(rows)
}

/// Maps and secrets of version 0, and the keys that hold them.
fn first_state(o: &CreateOptions, cx: &Context<'_>) -> (ClusterState, Vec<Write>) {
    let now = cx.now;
    let new = NewCluster {
        fsid: o.fsid,
        created: now,
        failure_domain: o.failure_domain,
    };
    let (osdmap, inc) = (new.map(), new.first());
    let (full, _) = osdmap.encode_for(u64::MAX);
    let mut history = MapHistory::default();
    history.push(osdmap.epoch, inc.to_bytes(), full.clone());
    let monmap = MonMap::new(o.fsid, now, [(o.mon_name.clone(), o.mon_addrs.clone())]);
    let mut rotating = ServiceSecrets::default();
    let ttl = KeyServerConfig::default();
    rotating.rotate(ttl.auth_ttl, ttl.service_ttl, cx);
    let state = ClusterState {
        revision: 0,
        version: 0,
        format: None,
        fsid: o.fsid,
        created: now,
        monmap: Arc::new(monmap),
        mgrmap: Arc::default(),
        fsmap: Arc::default(),
        mds: Arc::default(),
        osdmap: Arc::new(osdmap),
        history: Arc::new(history),
        config: Arc::default(),
        config_keys: Arc::default(),
        auth: Arc::default(),
        rotating: Arc::new(rotating),
        mutes: Arc::default(),
        pgs: Arc::default(),
        asked_down: Arc::default(),
        osd_metadata: Arc::default(),
        scrubs: Arc::default(),
        fences: Arc::default(),
        log: Arc::default(),
        audit: Arc::default(),
        snap_owners: Arc::default(),
        global_id_limit: FIRST_GLOBAL_ID,
    };
    let epoch = state.osdmap.epoch;
    let ops = vec![
        Write::put(
            keys::CLUSTER,
            ClusterId {
                fsid: o.fsid,
                created: now,
            }
            .to_bytes(),
        ),
        Write::put(keys::MONMAP, state.monmap.to_bytes()),
        Write::put(keys::MGRMAP, state.mgrmap.to_bytes()),
        Write::put(keys::ROTATING, state.rotating.to_bytes()),
        Write::put(keys::GLOBAL_ID_LIMIT, state.global_id_limit.to_bytes()),
        Write::put(keys::full(epoch), full),
    ];
    (state, ops)
}

/// Keys of the entities and the first settings.
fn first_changes(o: &CreateOptions, cx: &Context<'_>) -> Changes {
    let mut out = Changes::none();
    let mut put = |name: AuthName, caps: &[(&str, &str)]| {
        out.push(Change::AuthPut {
            name,
            entity: new_entity(cx, caps),
        });
    };
    put(AuthName::new(EntityKind::Client, "admin"), &ADMIN_CAPS);
    put(AuthName::new(EntityKind::Mon, ""), &MON_CAPS);
    put(AuthName::new(EntityKind::Mgr, "x"), &MGR_CAPS);
    for id in &o.osds {
        put(AuthName::new(EntityKind::Osd, id.to_string()), &OSD_CAPS);
    }
    for (who, name, value) in &o.config {
        out.push(Change::ConfigSet {
            who: who.clone(),
            name: name.clone(),
            value: value.clone(),
        });
    }
    out
}
