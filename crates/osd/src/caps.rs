//! A client's OSD capabilities, as the PG asks for them.

use auth::caps::{ClassCall, OsdCaps, OsdNeed};
use pg::{Allow, Capabilities, Need};

/// Parsed once for each connection. Text that does not parse grants nothing.
#[derive(Debug)]
pub enum ClientCaps {
    /// Authentication is off, or `allow *`: everything is allowed.
    All,
    Granted(OsdCaps),
}

impl Capabilities for ClientCaps {
    fn allows(&self, need: &Need<'_>, what: Allow<'_>) -> bool {
        let Self::Granted(caps) = self else { return true };
        let mut whole = OsdNeed {
            pool: &need.pool.name,
            applications: &need.pool.applications,
            namespace: need.nspace,
            object: need.oid,
            read: false,
            write: false,
            calls: &[],
            peer: need.from,
        };
        match what {
            Allow::Data { read, write } => {
                (whole.read, whole.write) = (read, write);
                caps.allows(&whole)
            }
            Allow::Call {
                class,
                method,
                read,
                write,
            } => {
                let call = [ClassCall {
                    class,
                    method,
                    read,
                    write,
                }];
                whole.calls = &call;
                caps.allows(&whole)
            }
        }
    }
}
