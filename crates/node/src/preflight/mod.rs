//! `skep preflight`: what of a machine a store would suffer from, looked at before the first start. Nothing stays changed.

mod disks;
mod host;

use crate::platform::Platform;
use crate::settle::{self, StartOptions};
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Good,
    /// It works, and worse than it could.
    Warning,
    /// `skep up` would fail.
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub about: String,
    pub verdict: Verdict,
    pub text: String,
}

impl Finding {
    fn new(about: &str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            verdict,
            text: text.into(),
        }
    }
}

/// Looks at everything that a first start with these options would need, one after the other; the disk is written to for so long.
pub async fn preflight(dir: &Path, options: &StartOptions, probe: Duration) -> Vec<Finding> {
    let platform = Platform::system();
    let osds = settle::first_osds(options);
    let mut found = disks::look(dir, options, osds, probe, &*platform.clock);
    found.extend(host::look(options, osds, &platform));
    if let Some(etcd) = &options.etcd {
        found.push(host::etcd(etcd, &platform).await);
    }
    found
}
