//! Options that have another place by now: hidden, accepted for one release more, with a warning that says which.

use clap::ArgMatches;
use clap::parser::ValueSource;

pub struct Old {
    /// As the parser calls it.
    id: &'static str,
    pub long: &'static str,
    /// What to say in its place.
    pub instead: &'static str,
}

const fn old(id: &'static str, long: &'static str, instead: &'static str) -> Old {
    Old { id, long, instead }
}

/// In the order of the command line's table. What holds for one gateway because of the proxy before it is set for its host alone: others
/// would take clients' keys in the clear.
#[rustfmt::skip]
pub const OLD: &[Old] = &[
    old("no_msgr1", "no-msgr1", "--msgr1-port none"),
    old("no_spare", "no-spare", "--spare off"),
    old("allow_pool_delete", "allow-pool-delete", "ceph config set mon mon_allow_pool_delete true"),
    old("domains", "s3-domain", "ceph config set client.rgw rgw_dns_name NAME,..."),
    old("sites", "s3-website-domain", "ceph config set client.rgw rgw_dns_s3website_name NAME,..."),
    old("s3_key_file", "s3-key", "--s3-cert FILE with certificate and key"),
    old("usage_log", "s3-usage-log", "ceph config set client.rgw rgw_enable_usage_log true"),
    old("plain_keys", "s3-customer-keys-without-tls", "ceph config set client.rgw/host:HOST rgw_crypt_require_ssl false"),
    old("swift", "s3-swift", "ceph config set client.rgw rgw_enable_apis s3,swift"),
    old("swift_url", "s3-swift-url", "ceph config set client.rgw/host:HOST rgw_swift_url URL"),
    old("gc_wait", "s3-gc-wait", "ceph config set client.rgw rgw_gc_obj_min_wait SECONDS"),
    old("console_key", "console-key", "--console-cert FILE with certificate and key"),
    old("etcd_key", "etcd-key", "--etcd-cert FILE with certificate and key"),
    old("etcd_password_file", "etcd-password-file", "--etcd-user NAME:FILE"),
];

/// A warning for each of them that a command line, or the file of its `--config`, has.
pub fn warnings(said: &ArgMatches) -> Vec<String> {
    let mut of = said;
    while let Some((_, below)) = of.subcommand() {
        of = below;
    }
    let is_said = |old: &&Old| {
        // Most commands have none of them.
        let has = of.try_contains_id(old.id).unwrap_or_default();
        has && of.value_source(old.id) == Some(ValueSource::CommandLine)
    };
    let warning = |old: &Old| {
        let Old { long, instead, .. } = old;
        format!("--{long} has another place, and is accepted for this release alone: `{instead}`")
    };
    OLD.iter().filter(is_said).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    /// Hidden for tests, or for ever.
    const OF_TESTS: [&str; 3] = ["msgr1-first", "s3-split-at", "s3-lifecycle-day"];
    const MOST: usize = 39;

    /// An operator has to know few; and none is hidden to have few.
    #[test]
    fn a_node_has_fewer_than_40_options() {
        let all = Args::command();
        let up = all.find_subcommand("up").unwrap();
        let (hidden, shown): (Vec<_>, Vec<_>) = up.get_arguments().partition(|a| a.is_hide_set());
        let shown: Vec<_> = shown.into_iter().filter_map(clap::Arg::get_long).collect();
        assert!(shown.len() <= MOST, "{}: {shown:?}", shown.len());
        for arg in hidden {
            let long = arg.get_long().unwrap();
            let old = OLD.iter().find(|o| o.long == long);
            assert!(old.is_some() || OF_TESTS.contains(&long), "--{long} is hidden");
            assert!(old.is_none_or(|o| arg.get_id() == o.id), "--{long}");
        }
        for old in OLD {
            let there = up.get_arguments().any(|a| a.get_long() == Some(old.long));
            assert!(there, "--{}", old.long);
        }
    }

    fn said(line: &str) -> Vec<String> {
        let words = std::iter::once("skep").chain(line.split_whitespace());
        warnings(&Args::command().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn each_says_what_is_in_its_place() {
        let none: [&str; 0] = [];
        for line in [
            "up",
            "up --s3 --s3-cert x --spare --msgr1-port none --s3-usage-keep 7",
            "up --etcd http://a:1 --etcd-cert x --etcd-user me:file",
            "status",
            "s3 key rm x",
            // It has a --key-file of its own.
            "backup init /r --key-file k",
        ] {
            assert_eq!(said(line), none, "{line}");
        }
        for (line, instead) in [
            ("up --no-msgr1", "`--msgr1-port none`"),
            ("preflight --no-spare", "`--spare off`"),
            ("up --allow-pool-delete", "mon_allow_pool_delete true`"),
            ("up --s3 --s3-domain a", "rgw_dns_name"),
            ("s3 serve --s3-website-domain a", "rgw_dns_s3website_name"),
            ("s3 serve --s3-cert a --s3-key b", "--s3-cert FILE"),
            ("s3 serve --s3-usage-log", "rgw_enable_usage_log true`"),
            (
                "s3 serve --s3-customer-keys-without-tls",
                "client.rgw/host:HOST rgw_crypt_require_ssl false`",
            ),
            ("up --s3 --s3-swift", "rgw_enable_apis s3,swift`"),
            ("up --s3 --s3-gc-wait 2", "rgw_gc_obj_min_wait"),
            (
                "up --console --console-cert a --console-key b",
                "--console-cert FILE",
            ),
            (
                "up --etcd http://a:1 --etcd-cert a --etcd-key b",
                "--etcd-cert FILE",
            ),
            (
                "cluster move-to-etcd --etcd http://a:1 --etcd-user a --etcd-password-file b",
                "--etcd-user NAME:FILE`",
            ),
        ] {
            let warnings = said(line);
            assert_eq!(warnings.len(), 1, "{line}: {warnings:?}");
            assert!(warnings[0].contains(instead), "{line}: {warnings:?}");
        }
        assert_eq!(said("s3 serve --s3-swift --s3-swift-url http://a").len(), 2);
    }
}
