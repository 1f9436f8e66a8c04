//! Messages on the manager's port (docs/protocol/ceph/02-monitor.md, section 9).

use super::{Body, plain_body};
use bytes::Bytes;
use denc::{Reader, Result, Writer};
use std::collections::BTreeMap;
use types::Uuid;

/// A service daemon introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrOpen {
    pub daemon_name: String,
    pub service_name: String,
    /// Metadata and status, if it is a service daemon.
    pub service: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
    pub config: Bytes,
    pub config_defaults: Bytes,
}

impl Body for MMgrOpen {
    const KIND: u16 = 0x700;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.string(&self.daemon_name);
        w.string(&self.service_name);
        w.put(&self.service);
        w.put(&self.config);
        w.put(&self.config_defaults);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let daemon_name = r.string()?;
        let mut body = Self {
            daemon_name,
            service_name: String::new(),
            service: None,
            config: Bytes::new(),
            config_defaults: Bytes::new(),
        };
        if version >= 2 {
            body.service_name = r.string()?;
            body.service = r.get()?;
        }
        if version >= 3 {
            body.config = r.get()?;
            body.config_defaults = r.get()?;
        }
        Ok(body)
    }
}

/// How often the peer shall report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrConfigure {
    /// Seconds; 0 stops reports.
    pub stats_period: u32,
    pub stats_threshold: u32,
    /// OSD performance queries; always none.
    pub queries: u32,
    /// No metric configuration follows.
    pub has_metric_config: bool,
}
plain_body!(MMgrConfigure, 0x701, 4, 1, { stats_period, stats_threshold, queries, has_metric_config });

/// A report; who sends it is read, and what a service daemon says of itself. The counters are not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrReport {
    pub daemon_name: String,
    pub rest: Bytes,
}

impl Body for MMgrReport {
    const KIND: u16 = 0x702;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.string(&self.daemon_name);
        w.raw(&self.rest);
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            daemon_name: r.string()?,
            rest: r.rest(),
        })
    }
}

/// What a service daemon says of itself in a report; `None`: as before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceReport {
    pub service_name: String,
    pub status: Option<BTreeMap<String, String>>,
    pub task_status: Option<BTreeMap<String, String>>,
}

impl MMgrReport {
    /// Past the counters (declared ones, their values, those that ended): the service's name and status; then health
    /// metrics, configuration, what only OSDs send, and the tasks.
    pub fn service(&self) -> Result<ServiceReport> {
        let mut r = Reader::new(self.rest.clone());
        for _ in 0..r.u32()? {
            skip_envelope(&mut r)?;
        }
        r.blob()?;
        r.get::<Vec<String>>()?;
        let mut report = ServiceReport {
            service_name: r.string()?,
            status: r.get()?,
            task_status: None,
        };
        for _ in 0..r.u32()? {
            skip_envelope(&mut r)?;
        }
        r.blob()?;
        // An OSD's answers to queries: their layout is not needed, and nothing behind them.
        if r.u32()? == 0 {
            report.task_status = r.get()?;
        }
        Ok(report)
    }
}

fn skip_envelope(r: &mut Reader) -> Result<()> {
    r.envelope(u8::MAX, |_, _| Ok(()))
}

/// Echoed by the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrClose {
    pub daemon_name: String,
    pub service_name: String,
}
plain_body!(MMgrClose, 0x708, 1, 1, { daemon_name, service_name });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrCommand {
    /// All zero in practice: not to be checked.
    pub fsid: Uuid,
    pub cmd: Vec<String>,
    pub input: Bytes,
}
plain_body!(MMgrCommand, 0x709, 1, 1, { fsid, cmd }, data input);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMgrCommandReply {
    pub code: i32,
    pub status: String,
    pub output: Bytes,
}
plain_body!(MMgrCommandReply, 0x70a, 1, 1, { code, status }, data output);
