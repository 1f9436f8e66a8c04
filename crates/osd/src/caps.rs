//! A client's OSD capabilities, as the PG asks for them.

use auth::{OsdCaps, OsdNeed};
use pg::{Allow, Capabilities, Need};

/// Parsed once for each connection. Text that does not parse grants nothing.
#[derive(Debug)]
pub enum ClientCaps {
    /// Authentication is off: everything is allowed.
    All,
    Granted(OsdCaps),
}

impl Capabilities for ClientCaps {
    fn allows(&self, need: &Need<'_>, what: Allow<'_>) -> bool {
        let Self::Granted(caps) = self else { return true };
        let (read, write, call) = match what {
            Allow::Data { read, write } => (read, write, None),
            Allow::Call { class, method, read, write } => (read, write, Some((class, method))),
        };
        caps.allows(&OsdNeed {
            pool: &need.pool.name,
            applications: &need.pool.applications,
            nspace: need.nspace,
            object: need.oid,
            client: need.client,
            read,
            write,
            call,
        })
    }
}
