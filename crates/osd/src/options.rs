//! The options that this OSD goes by, by their names in Ceph: what it reads from the central configuration, and the limits
//! that are fixed here, which no configuration changes.
//!
//! Invariants: every value is asked of what acts by it, so that `config show` tells what the OSD does and not what
//! somebody wanted it to do. An option that does nothing here is not in the list.

use crate::bench;
use crate::compression;
use crate::membership::beats::HUNG_DISK_OPTION;
use crate::modes;
use crate::ops::history::Limits;
use crate::ops::shown;
use crate::osd::Osd;
use crate::recovery::Profile;
use crate::scrub;
use auth::ConMode;
use std::collections::BTreeMap;
use types::AuthName;

fn text_of(modes: &[ConMode]) -> String {
    let name = |m: &ConMode| match m {
        ConMode::Crc => "crc",
        ConMode::Secure => "secure",
    };
    modes.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// What is compiled in. `osd_max_write_size` is in MiB.
fn fixed() -> [(&'static str, String); 10] {
    [
        ("osd_max_attr_name_len", pg::XATTR_NAME_MAX.to_string()),
        ("osd_max_attr_size", pg::XATTR_VALUE_MAX.to_string()),
        ("osd_max_object_name_len", pg::OBJECT_NAME_MAX.to_string()),
        ("osd_max_object_namespace_len", pg::NAMESPACE_MAX.to_string()),
        ("osd_max_object_size", pg::OBJECT_SIZE_MAX.to_string()),
        ("osd_max_omap_entries_per_request", pg::OMAP_KEYS_MAX.to_string()),
        ("osd_max_pgls", pg::LIST_ENTRIES_MAX.to_string()),
        ("osd_max_write_op_reply_len", pg::RETURN_MAX.to_string()),
        ("osd_max_write_size", (pg::WRITTEN_MAX >> 20).to_string()),
        (
            "osd_op_complaint_time",
            format!("{:.6}", shown::COMPLAINT.as_secs_f64()),
        ),
    ]
}

impl Osd {
    pub fn auth_name(&self) -> AuthName {
        modes::name_of(self.id)
    }

    /// An option, if somebody set it: what this run was told counts for more than the central configuration, of which the
    /// masks of host and device class are heeded.
    pub fn option(&self, name: &str) -> Option<String> {
        self.told_options
            .get(name)
            .cloned()
            .or_else(|| self.central_option(name))
    }

    pub fn central_option(&self, name: &str) -> Option<String> {
        self.cluster
            .state()
            .option(&self.auth_name(), name)
            .map(str::to_string)
    }

    /// Takes over whose data is to be compressed now.
    pub fn heed_compression(&mut self) {
        let state = self.cluster.state();
        let options = compression::Options::of(|name| self.option(name));
        self.store.compression = compression::Policies::new(&options, state.osdmap.pools.iter());
    }

    /// All options that it goes by.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let state = self.cluster.state();
        let modes = modes::of(&state, self.id);
        // Where nobody has a key there is nothing to encrypt with.
        let possible = |wanted: &[ConMode]| match self.links.is_without_auth() {
            true => text_of(&[ConMode::Crc]),
            false => text_of(wanted),
        };
        let mut all: BTreeMap<_, _> = fixed().into();
        all.extend(scrub::Options::of(|name| self.option(name)).shown());
        all.extend(Limits::of(|name| self.option(name)).shown());
        all.extend(bench::Limits::of(|name| self.option(name)).shown());
        all.extend(compression::Options::of(|name| self.option(name)).shown());
        all.extend([
            ("ms_cluster_mode", possible(&modes.daemons)),
            ("ms_service_mode", possible(&modes.clients)),
            (HUNG_DISK_OPTION, self.hung_after().as_secs().to_string()),
            ("osd_memory_target", self.meters.accountant.budget().to_string()),
            (Profile::OPTION, self.recovery_profile().name().to_string()),
        ]);
        all
    }
}
