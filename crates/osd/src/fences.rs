//! Who is fenced: sessions end with the map that says so, and an instance that was seen here under a fenced address stays fenced
//! under any other.
//!
//! Invariants: before a PG hears of a new map, every session whose client that map fences is marked, so that nothing of it is
//! executed any more, whatever it waits for. Whom this OSD alone has recognized it tells the cluster state, so that the others
//! know it as well. A fenced client may connect again, to be told that it is (-108).
//!
//! Bound: [`SEEN_MAX`]. Not here: which operations are refused (`pg::front::checks`), who loses its watches (`pg::front::watch`).

use crate::osd::Osd;
use cluster::Instance;
use net::ConnId;
use pg::Client;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::EntityAddr;

/// Instances that are remembered here; beyond these addresses alone fence, and what the cluster state knows.
const SEEN_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub struct Fences {
    /// By global id: the entry, and how the instance was seen.
    seen: BTreeMap<u64, (EntityAddr, Instance)>,
    /// Some sessions may be marked.
    marked: bool,
    /// The cluster state is being told.
    telling: Rc<Cell<bool>>,
}

impl Osd {
    pub fn is_fenced(&self, client: &Client) -> bool {
        let state = &self.placement.state;
        self.fences.seen.contains_key(&client.global_id)
            || state.osdmap.fencing(&client.addr, client.from).is_some()
            || self.placement.blocklist.has_id(client.global_id)
    }

    /// Remembers a client that has a fenced address, and marks one that is fenced in any way. True if it is.
    fn meet(&mut self, client: &Client) -> bool {
        let entry = self.placement.state.osdmap.fencing(&client.addr, client.from);
        if let Some(entry) = entry
            && client.global_id != 0
            && self.fences.seen.len() < SEEN_MAX
        {
            let instance = Instance {
                global_id: client.global_id,
                addr: client.addr,
                from: client.from,
            };
            self.fences.seen.insert(client.global_id, (entry, instance));
        }
        let fenced = self.is_fenced(client);
        client.fence.set_known(fenced);
        self.fences.marked |= fenced;
        fenced
    }

    /// A connection was made.
    pub fn meet_session(&mut self, conn: ConnId) {
        if let Some(client) = self.sessions.client(conn)
            && self.meet(&client)
        {
            tracing::info!("conn {}: {} at {} is fenced", conn.0, client.name, client.addr);
            self.tell_fenced();
        }
    }

    /// A new map, before anybody else hears of it. Sessions that are to end now.
    pub fn mark_fenced(&mut self) -> Vec<ConnId> {
        let map = self.placement.state.osdmap.clone();
        let empty = map.blocklist.is_empty() && map.range_blocklist.is_empty();
        if empty && !self.fences.marked && self.fences.seen.is_empty() {
            return Vec::new();
        }
        self.fences.marked = false;
        let stands = |e: &EntityAddr| map.blocklist.contains_key(e) || map.range_blocklist.contains_key(e);
        self.fences.seen.retain(|_, (entry, _)| stands(entry));
        // Twice: the second look finds those whose instance the first has recognized by another session of it.
        let clients = self.sessions.clients();
        for (_, client) in &clients {
            self.meet(client);
        }
        let fenced = clients.into_iter().filter(|(_, client)| self.meet(client));
        fenced.map(|(conn, _)| conn).collect()
    }

    pub fn end_fenced(&mut self, fenced: Vec<ConnId>) {
        for conn in fenced {
            self.close(conn, "fenced by the blocklist");
        }
        self.tell_fenced();
    }

    /// Tells the cluster state of those that it does not know; again about once a second until it does.
    pub fn tell_fenced(&mut self) {
        let unknown = |id: &u64| !self.placement.blocklist.has_id(*id);
        let seen = self.fences.seen.iter().filter(|(id, _)| unknown(id));
        let untold: Vec<Instance> = seen.map(|(_, (_, instance))| *instance).collect();
        if untold.is_empty() || self.fences.telling.replace(true) {
            return;
        }
        let (cluster, telling) = (self.cluster.clone(), self.fences.telling.clone());
        io::task::spawn_local(async move {
            if let Err(e) = cluster.fence(&untold).await {
                tracing::warn!(
                    "{} fenced instances are known to this OSD alone: {e}",
                    untold.len()
                );
            }
            telling.set(false);
        });
    }
}
