//! The options of servers that Skep acts upon: who reads each of them, and what for. Whoever makes one act adds it here: `config set`
//! and `config help` say of all others that they do nothing. docs/operating/options.md is made from this table; that it tells the truth is
//! looked at by `house` (each is read somewhere, and what monitors read is here).

/// Whose sections of the central configuration reach an option, besides `global`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readers {
    pub kinds: &'static [&'static str],
    /// Masks and single daemons count, too: `osd.3`, `osd/class:ssd`, `global/host:a`. Otherwise it is one value for the whole cluster.
    pub each: bool,
}

/// Decisions about the cluster: every monitor makes the same.
const MON: Readers = Readers {
    kinds: &["mon"],
    each: false,
};
const MGR: Readers = Readers {
    kinds: &["mgr"],
    each: false,
};
const MON_MGR: Readers = Readers {
    kinds: &["mgr", "mon"],
    each: false,
};
const EACH_MON: Readers = Readers {
    kinds: &["mon"],
    each: true,
};
const OSD: Readers = Readers {
    kinds: &["osd"],
    each: true,
};
/// Gateways of objects, of `client.rgw` before all (`options::gateway`).
const GATEWAY: Readers = Readers {
    kinds: &["client"],
    each: true,
};
const SERVICES: Readers = Readers {
    kinds: &["mgr", "osd"],
    each: true,
};

#[derive(Debug, Clone, Copy)]
pub struct Acting {
    pub name: &'static str,
    pub readers: Readers,
    /// What it does here, with the bounds that its type does not tell.
    pub what: &'static str,
}

const fn act(name: &'static str, readers: Readers, what: &'static str) -> Acting {
    Acting { name, readers, what }
}

/// By name.
#[rustfmt::skip]
pub const ACTING: &[Acting] = &[
    act("auth_allow_insecure_global_id_reclaim", MON, "an entity that proves its key may claim a global id without a ticket: for clients older than 2021"),
    act("bluestore_compression_algorithm", OSD, "of pools that name none; empty: none"),
    act("bluestore_compression_max_blob_size", OSD, "what is compressed as one piece, at most; 0: 64 KiB"),
    act("bluestore_compression_min_blob_size", OSD, "what is smaller is not compressed; 0: 8 KiB"),
    act("bluestore_compression_mode", OSD, "of pools that name none: never, where the client hints so, unless it hints otherwise, always"),
    act("bluestore_compression_required_ratio", OSD, "kept compressed where it comes to no more than this share"),
    act("mgr/alerts/interval", MGR, "seconds: a receiver hears no more often"),
    act("mgr/alerts/repeat_interval", MGR, "seconds until what is still raised is told again; 0: never"),
    act("mgr/alerts/smtp_destination", MGR, "addresses of e-mails, comma between them"),
    act("mgr/alerts/smtp_from_name", MGR, "name beside the sender's address"),
    act("mgr/alerts/smtp_host", MGR, "the server for e-mails; empty: none are sent"),
    act("mgr/alerts/smtp_password", MGR, "password of `smtp_user`"),
    act("mgr/alerts/smtp_port", MGR, "port of the server"),
    act("mgr/alerts/smtp_sender", MGR, "the sender's address"),
    act("mgr/alerts/smtp_ssl", MGR, "TLS from the first byte on; false: by STARTTLS where the server has it"),
    act("mgr/alerts/smtp_user", MGR, "who logs in at the server; empty: nobody does"),
    act("mgr/alerts/webhook_url", MGR, "where alarms are posted in Alertmanager's format; empty: nowhere"),
    act("mgr/balancer/active", MGR, "the balancer works by itself"),
    act("mgr/balancer/min_disk_ratio", MGR, "an OSD that is off its share by less than this part of its disk is left alone"),
    act("mgr/balancer/mode", MGR, "`upmap` moves groups; with the others nothing moves"),
    act("mgr/balancer/pool_ids", MGR, "pools that it looks at, comma between their ids; empty: all"),
    act("mgr/balancer/sleep_interval", MGR, "seconds between its looks"),
    act("mgr/balancer/upmap_max_optimizations", MGR, "groups that one plan moves; at most 100"),
    act("mgr/pg_autoscaler/noautoscale", MGR, "no pool's number of groups follows its data"),
    act("mgr/pg_autoscaler/sleep_interval", MGR, "seconds between its looks"),
    act("mon_allow_pool_delete", MON, "pools may be deleted"),
    act("mon_allow_pool_size_one", MON, "pools may have one copy, by `--yes-i-really-mean-it`"),
    act("mon_max_pg_per_osd", MON, "copies of groups on an OSD beyond which pools are refused, and health warns"),
    act("mon_max_pool_pg_num", MON, "groups that a pool may have"),
    act("mon_osd_down_out_interval", MON, "seconds until an OSD that stays down is marked out (a tenth where data has one copy left); 0: never"),
    act("mon_osd_down_out_subtree_limit", MON, "where a whole bucket of this type is down, its OSDs stay in"),
    act("mon_osd_min_in_ratio", MON, "below this share of OSDs that are in, none is marked out"),
    act("mon_pg_stuck_threshold", MON, "seconds until a group that is not active and clean is called stuck"),
    act("mon_pool_quota_crit_threshold", MON_MGR, "percent of a quota at which health is an error; 0: none"),
    act("mon_pool_quota_warn_threshold", MON_MGR, "percent of a quota at which health warns; 0: none"),
    act("mon_target_pg_per_osd", MON, "copies of groups on an OSD that the autoscaler aims at"),
    act("mon_warn_on_insecure_global_id_reclaim_allowed", MON, "health warns where `auth_allow_insecure_global_id_reclaim` is on"),
    act("mon_warn_on_misplaced", MON, "health warns of copies that are whole, and elsewhere than they shall be"),
    act("mon_warn_on_pool_no_redundancy", MON, "health warns of pools with one copy"),
    act("mon_warn_on_too_few_osds", MON, "health warns of fewer OSDs than `osd_pool_default_size`, where that is set"),
    act("mon_warn_pg_not_deep_scrubbed_ratio", MON, "health warns of a group that was not deep-scrubbed for its interval and this part of it more; 0: never"),
    act("mon_warn_pg_not_scrubbed_ratio", MON, "the same of scrubs"),
    act("ms_cluster_mode", OSD, "between OSDs: `crc`, `secure`, or both in the order of preference"),
    act("ms_mon_cluster_mode", EACH_MON, "what daemons may speak with monitors"),
    act("ms_mon_service_mode", EACH_MON, "what clients may speak with monitors"),
    act("ms_service_mode", SERVICES, "what clients may speak with OSDs and the manager"),
    act("osd_bench_duration", OSD, "seconds that the bounds of `ceph tell osd.N bench` are reckoned for"),
    act("osd_bench_large_size_max_throughput", OSD, "bytes a second of that reckoning, for blocks from 1 MiB on"),
    act("osd_bench_max_block_size", OSD, "the largest block of `ceph tell osd.N bench`, at most 64 MiB"),
    act("osd_bench_small_size_max_iops", OSD, "blocks a second of that reckoning, for blocks below 1 MiB"),
    act("osd_deep_scrub_interval", OSD, "seconds within which all data of a group are compared, where its pool says nothing else"),
    act("osd_hung_disk_timeout", OSD, "seconds without the end of a flush until an OSD steps down"),
    act("osd_max_scrubs", OSD, "groups that an OSD scrubs at a time, as their primary"),
    act("osd_op_history_duration", OSD, "seconds that operations are remembered for `dump_historic_ops`"),
    act("osd_op_history_size", OSD, "operations that are remembered"),
    act("osd_op_history_slow_op_size", OSD, "slow operations that are remembered"),
    act("osd_op_history_slow_op_threshold", OSD, "seconds from which on an operation is slow there"),
    act("osd_pool_default_flag_bulk", MON, "new pools have the flag `bulk`"),
    act("osd_pool_default_flag_nodelete", MON, "new pools have the flag `nodelete`"),
    act("osd_pool_default_flag_nopgchange", MON, "new pools have the flag `nopgchange`"),
    act("osd_pool_default_flag_nosizechange", MON, "new pools have the flag `nosizechange`"),
    act("osd_pool_default_min_size", MON, "copies of new pools below which writes wait; 0: more than half"),
    act("osd_pool_default_pg_autoscale_mode", MON, "of new pools; where it is not set: on for those made without a number of groups, off for others"),
    act("osd_pool_default_pg_num", MON, "groups of new pools that name no number"),
    act("osd_pool_default_size", MON, "copies of new pools; where it is not set: 3, fewer while there are fewer OSDs or hosts"),
    act("osd_pool_erasure_code_stripe_unit", MON, "bytes of a stripe on one shard in new erasure-coded pools whose profile names none"),
    act("osd_recovery_profile", OSD, "how fast copies are made whole beside clients' work"),
    act("osd_scrub_auto_repair", OSD, "deep scrubs put a good copy in the place of bad ones by themselves"),
    act("osd_scrub_auto_repair_num_errors", OSD, "where they find no more bad ones than this"),
    act("osd_scrub_begin_hour", OSD, "the hour (UTC) from which on scrubs begin; the same as the end: at any"),
    act("osd_scrub_begin_week_day", OSD, "the day from which on scrubs begin, 0 is Sunday; the same as the end: on any"),
    act("osd_scrub_end_hour", OSD, "the hour in which they begin no more"),
    act("osd_scrub_end_week_day", OSD, "the day on which they begin no more"),
    act("osd_scrub_interval_randomize_ratio", OSD, "part of the smallest interval by which groups are spread"),
    act("osd_scrub_max_interval", OSD, "seconds after which a scrub no longer waits for its hours and days"),
    act("osd_scrub_min_interval", OSD, "seconds between two scrubs of a group, where its pool says nothing else"),
    act("rgw_crypt_require_ssl", GATEWAY, "gateways take clients' keys (SSE-C) by TLS alone; false: without it, too, behind a proxy that has it"),
    act("rgw_dns_name", GATEWAY, "names of the gateway below which buckets are hosts, BUCKET.NAME, comma between them; buckets in the path go on"),
    act("rgw_dns_s3website_name", GATEWAY, "names below which buckets are websites, BUCKET.NAME, comma between them; others than those of `rgw_dns_name`"),
    act("rgw_enable_apis", GATEWAY, "`s3` and `swift` are served where they are named; the other words change nothing. Swift: below /swift/v1, with TempAuth at /auth/v1.0; buckets called swift, auth or info are not reached by path then. Where it is not set: S3 alone"),
    act("rgw_enable_usage_log", GATEWAY, "what is asked is written down, by users, buckets, hours and operations (`skep s3 usage`), for the days of --s3-usage-keep"),
    act("rgw_gc_obj_min_wait", GATEWAY, "seconds that replaced and deleted data stay, for readers that have begun; 1 to 604800. Where it is not set: 900"),
    act("rgw_swift_url", GATEWAY, "what clients of Swift are told in place of where they came in: https://HOST of a proxy in front"),
    act("target_max_misplaced_ratio", MGR, "part of all bytes that may be on the move for balancing; 0: nothing is moved, and pools with data keep their groups"),
];

pub fn acting(name: &str) -> Option<&'static Acting> {
    ACTING.iter().find(|a| a.name == name)
}

impl Readers {
    /// Whether what is set for `section` (`global`, `osd.1`, `osd/class:ssd`) is read.
    pub fn heed(&self, section: &str) -> bool {
        let kind = section.split(['.', '/']).next().unwrap_or(section);
        let known = kind == "global" || self.kinds.contains(&kind);
        known && (self.each || kind == section)
    }

    /// `global, mon`.
    pub fn text(&self) -> String {
        let mut all = vec!["global"];
        all.extend(self.kinds);
        all.join(", ")
    }
}
