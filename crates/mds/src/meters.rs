//! What a metadata server counts, under Ceph's names (16.2.15).

use metrics::{Counter, Gauge, Registry, spec};
use std::sync::Arc;

metrics::table! {
    /// The logger `mds`.
    pub struct MdsPerf {
        request: Counter = spec("Requests").nick("req").priority(8);
        inodes: Gauge = spec("Inodes").nick("inos").priority(8);
    }
}

metrics::table! {
    /// The logger `mds_server`.
    pub struct ServerPerf {
        handle_client_request: Counter = spec("Client requests").nick("hcr").priority(8);
    }
}

metrics::table! {
    /// The logger `mds_sessions`.
    pub struct SessionsPerf {
        session_count: Gauge = spec("Session count").nick("sess").priority(10);
    }
}

metrics::table! {
    /// The logger `objecter`: what it asks of the pools.
    pub struct ObjecterPerf {
        op_r: Counter = spec("Read operations").nick("read").priority(5);
        op_w: Counter = spec("Write operations").nick("writ").priority(5);
    }
}

/// One daemon's. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Meters {
    pub mds: Arc<MdsPerf>,
    pub server: Arc<ServerPerf>,
    pub sessions: Arc<SessionsPerf>,
    pub objecter: Arc<ObjecterPerf>,
}

/// As long as this is there the daemon serves; then it has no inodes and no sessions any more.
pub struct Shown(Meters);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.mds.inodes.set(0);
        self.0.sessions.session_count.set(0);
    }
}

impl Meters {
    pub fn shown(&self) -> Shown {
        Shown(self.clone())
    }

    pub fn new(registry: &Registry) -> Self {
        Self {
            mds: registry.make("mds"),
            server: registry.make("mds_server"),
            sessions: registry.make("mds_sessions"),
            objecter: registry.make("objecter"),
        }
    }
}
