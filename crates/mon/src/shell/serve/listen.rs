//! What a monitor and its manager begin with: keys, listeners, their addresses in the maps.

use super::given::{Error, MonConfig};
use crate::policies::INSECURE_RECLAIM;
use crate::shell::meters::Meters;
use auth::{AllowNone, AuthMethod, Authenticator, ConMode, KeyServer, KeyServerConfig, TicketVerifier};
use cluster::{Change, Changes, ClusterState};
use io::Clock;
use metastore::ClusterHandle;
use msgr::{Modes, ServerConfig};
use net::{Connections, Doors, NetEvent, Options};
use std::sync::Arc;
use tokio::sync::mpsc;
use types::mgrmap::MgrMap;
use types::{AuthName, EntityAddrVec, EntityKind, Utime};

/// Events of the messenger that may wait for the monitor.
pub const EVENTS_MAX: usize = 256;

pub struct Front {
    pub events: mpsc::Receiver<NetEvent>,
    pub connections: Connections,
}

/// The monitor's and the manager's listeners begin to serve.
pub fn fronts(
    config: &MonConfig,
    [mon, mgr]: [(Doors, ServerConfig); 2],
    meters: &Meters,
) -> Result<[Front; 2], Error> {
    let begin =
        |(doors, server), accounts| front(doors, server, &config.clock, config.connections_max, accounts);
    Ok([begin(mon, &meters.net[0])?, begin(mgr, &meters.net[1])?])
}

pub fn key_server(config: &MonConfig, state: &ClusterState) -> KeyServer {
    let (methods, modes) = match config.cephx {
        true => (vec![AuthMethod::Cephx], config.tickets.modes.clone()),
        false => (vec![AuthMethod::None], vec![ConMode::Crc]),
    };
    let keys = KeyServerConfig {
        methods,
        modes,
        ..config.tickets.clone()
    };
    let server = KeyServer::new(keys, state.auth.clone(), (*state.rotating).clone());
    server.allow_insecure_reclaim(state.mon_option_bool(INSECURE_RECLAIM, false));
    server
}

type MgrAuth = (Arc<dyn Authenticator>, Option<Arc<TicketVerifier>>);

pub fn manager_auth(config: &MonConfig, state: &ClusterState) -> MgrAuth {
    if !config.cephx {
        return (Arc::new(AllowNone), None);
    }
    let secrets = state.rotating.get(EntityKind::Mgr).cloned().unwrap_or_default();
    let verifier = Arc::new(TicketVerifier::new(
        EntityKind::Mgr,
        config.tickets.modes.clone(),
        secrets,
    ));
    verifier.set_entities(state.auth.clone(), state.version);
    (verifier.clone(), Some(verifier))
}

/// How connections to this monitor or manager are protected, as the central configuration says now.
pub fn modes_of(who: &AuthName, host: &str, state: &ClusterState) -> Modes {
    Modes::of(who.kind, |name| state.config.value(who, host, "", name))
}

fn front(
    doors: Doors,
    config: ServerConfig,
    clock: &Arc<dyn Clock>,
    connections_max: usize,
    accounts: &net::Accounts,
) -> Result<Front, Error> {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let connections = net::serve(
        doors,
        Arc::new(config),
        Options {
            connections_max,
            accounts: accounts.clone(),
            ..Options::default()
        },
        clock.clone(),
        sender,
    )
    .map_err(Error::Listen)?;
    Ok(Front { events, connections })
}

/// Puts this monitor's and manager's addresses into the maps.
pub async fn publish(
    cluster: &ClusterHandle,
    config: &MonConfig,
    mon_addrs: &EntityAddrVec,
    mgr_addrs: &EntityAddrVec,
    mgr_gid: u64,
    now: Utime,
) -> Result<(), Error> {
    let decide = |state: &ClusterState| {
        let mut changes = Changes::none();
        let known = state.monmap.mon_info.get(&config.name);
        if known.is_none_or(|m| m.addrs != *mon_addrs) {
            let mut map = (*state.monmap).clone();
            let fresh = types::monmap::MonMap::new(map.fsid, now, [(config.name.clone(), mon_addrs.clone())]);
            map.mon_info.extend(fresh.mon_info);
            if map.rank_of(&config.name).is_none() {
                map.ranks.push(config.name.clone());
            }
            map.last_changed = now;
            changes.push(Change::MonMap(Box::new(map)));
        }
        // Another monitor's manager stays until it is known to be gone; an earlier run of this one is.
        let old = &state.mgrmap;
        let alone = state.monmap.ranks.iter().all(|name| *name == config.name);
        if alone || !old.available || old.active_name == config.mgr_name {
            let mut map = MgrMap::active(0, &config.mgr_name, mgr_gid, mgr_addrs.clone(), now);
            map.standbys = old.standbys.clone();
            changes.push(Change::MgrMap(Box::new(map)));
        }
        (changes, ())
    };
    cluster.commit(decide).await?;
    Ok(())
}
