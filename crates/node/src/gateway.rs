//! How a gateway of objects is told to behave: by options of its cluster, below what its command line says.

use ::s3::{Settings, Swift};
use client::{Client, Error};
use cluster::{ConfigDb, GatewayOptions};
use serde::Deserialize;
use std::time::Duration;
use types::{AuthName, Errno};

/// A line of `config dump`, of our monitors and of Ceph's.
#[derive(Deserialize)]
struct Row {
    section: String,
    #[serde(default)]
    mask: String,
    name: String,
    value: String,
}

/// What the cluster of `client`, which may be a Ceph, has set for a gateway that is `who`; and what is wrong with it. Where
/// its monitors do not tell `who` what is set, nothing is.
pub async fn asked(client: &Client, who: &AuthName) -> Result<(GatewayOptions, Vec<String>), String> {
    const DUMP: &str = r#"{"prefix": "config dump", "format": "json"}"#;
    match client.mon_command(DUMP, "").await {
        Ok(told) => {
            let config = dumped(&told.output)?;
            Ok(GatewayOptions::read(&config, who, &io::files::hostname()))
        }
        Err(Error::Refused { errno, what }) if [Errno::EACCES, Errno::EPERM].contains(&errno) => {
            let why = format!("the cluster's options are not read: {who} may not ask for them ({what})");
            Ok((GatewayOptions::default(), vec![why]))
        }
        Err(e) => Err(format!("the cluster's options: {e}")),
    }
}

fn dumped(output: &[u8]) -> Result<ConfigDb, String> {
    let rows: Vec<Row> = serde_json::from_slice(output).map_err(|e| format!("the cluster's options: {e}"))?;
    let mut config = ConfigDb::default();
    for row in rows {
        let section = match row.mask.is_empty() {
            true => row.section,
            false => format!("{}/{}", row.section, row.mask),
        };
        let options = config.sections.entry(section).or_default();
        options.insert(row.name, row.value);
    }
    Ok(config)
}

/// A URL that clients can be told.
pub fn url(text: &str) -> Result<String, String> {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let good = |c: char| c.is_ascii_graphic();
    match rest.is_some_and(|r| !r.is_empty() && r.chars().all(good)) {
        true => Ok(text.to_string()),
        false => Err("a URL of http or https".into()),
    }
}

/// What it comes to that the cluster has `set` this and a command line `said` that, which counts more: with the defaults of what is not
/// set, and without what cannot be meant, which is told. What comes to the same is equal.
pub fn meant(set: GatewayOptions, said: &GatewayOptions) -> (GatewayOptions, Vec<String>) {
    let (options, usual) = (set.under(said), Settings::default());
    let mut wrong = Vec::new();
    let swift = options.swift.unwrap_or_default();
    let told = options.swift_url.as_deref().map(url).transpose();
    let swift_url = told.unwrap_or_else(|e| {
        wrong.push(format!("rgw_swift_url is left out: {e} is wanted"));
        None
    });
    let options = GatewayOptions {
        domains: names("rgw_dns_name", &options.domains, &mut wrong),
        sites: names("rgw_dns_s3website_name", &options.sites, &mut wrong),
        usage_log: Some(options.usage_log.unwrap_or_default()),
        gc_wait_s: options.gc_wait_s.or(Some(usual.gc_wait.as_secs())),
        s3: Some(options.s3.unwrap_or(usual.s3)),
        swift: Some(swift),
        swift_url: swift_url.filter(|_| swift),
        require_ssl: Some(options.require_ssl.unwrap_or(!usual.plain_keys)),
    };
    (options, wrong)
}

/// Puts what is [`meant`] into a gateway's settings. `usage_days`: how long the usage log is kept.
pub fn apply(options: GatewayOptions, usage_days: u64, to: &mut Settings) {
    to.domains = options.domains;
    to.sites = options.sites;
    to.usage_keep = options.usage_log.unwrap_or_default().then_some(usage_days);
    if let Some(seconds) = options.gc_wait_s {
        to.gc_wait = Duration::from_secs(seconds);
    }
    to.plain_keys = options.require_ssl == Some(false);
    to.s3 = options.s3.unwrap_or(to.s3);
    let url = options.swift_url;
    to.swift = options.swift.unwrap_or_default().then_some(Swift { url });
}

fn names(option: &str, names: &[String], wrong: &mut Vec<String>) -> Vec<String> {
    let mut good = Vec::with_capacity(names.len());
    for name in names {
        match ::s3::domain(name) {
            Ok(name) => good.push(name),
            Err(e) => wrong.push(format!("{option}: {name:?} is left out: {e}")),
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph 16 and our monitors answer: with more fields than are asked for.
    const DUMPED: &str = r#"[
        {"section": "global", "name": "rgw_enable_usage_log", "value": "true", "level": "advanced", "can_update_at_runtime": true, "mask": ""},
        {"section": "client.rgw", "name": "rgw_dns_name", "value": "s3.test", "level": "advanced", "can_update_at_runtime": false, "mask": "",
         "location_type": "", "location_value": ""},
        {"section": "client.rgw", "name": "rgw_dns_name", "value": "other.test", "mask": "host:other"},
        {"section": "osd", "name": "osd_max_scrubs", "value": "2", "mask": "class:ssd"}]"#;

    #[test]
    fn a_cluster_is_understood() {
        let config = dumped(DUMPED.as_bytes()).unwrap();
        let who = "client.admin".parse().unwrap();
        let want = GatewayOptions {
            domains: vec!["s3.test".into()],
            usage_log: Some(true),
            ..GatewayOptions::default()
        };
        assert_eq!(GatewayOptions::read(&config, &who, "h1"), (want, vec![]));
        let there = GatewayOptions::read(&config, &who, "other").0;
        assert_eq!(there.domains, ["other.test"]);
        assert!(dumped(b"[]").unwrap().sections.is_empty());
        assert!(dumped(b"").is_err() && dumped(b"{}").is_err());
    }

    fn of(set: GatewayOptions) -> (GatewayOptions, Vec<String>) {
        meant(set, &GatewayOptions::default())
    }

    fn settings(set: GatewayOptions) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let (options, wrong) = of(set);
        apply(options, 400, &mut settings);
        (settings, wrong)
    }

    #[test]
    fn each_option_acts() {
        let (of_nothing, wrong) = settings(GatewayOptions::default());
        assert!(wrong.is_empty() && of_nothing.s3 && of_nothing.swift.is_none() && !of_nothing.plain_keys);
        assert!(of_nothing.domains.is_empty() && of_nothing.usage_keep.is_none());
        assert_eq!(of_nothing.gc_wait, Duration::from_secs(900));
        let (got, wrong) = settings(GatewayOptions {
            domains: vec!["S3.test".into()],
            sites: vec!["web.test".into()],
            usage_log: Some(true),
            gc_wait_s: Some(7200),
            s3: Some(false),
            swift: Some(true),
            swift_url: Some("https://swift.test".into()),
            require_ssl: Some(false),
        });
        assert!(wrong.is_empty() && got.plain_keys && !got.s3, "{wrong:?}");
        assert_eq!(
            (got.domains, got.sites),
            (vec!["s3.test".into()], vec!["web.test".into()])
        );
        assert_eq!(
            (got.usage_keep, got.gc_wait),
            (Some(400), Duration::from_secs(7200))
        );
        assert_eq!(
            got.swift.and_then(|s| s.url).as_deref(),
            Some("https://swift.test")
        );
    }

    #[test]
    fn what_cannot_be_meant_keeps_nobody_from_serving() {
        let (got, wrong) = settings(GatewayOptions {
            domains: vec!["127.0.0.1".into(), "s3.test".into()],
            sites: vec!["web test".into()],
            swift: Some(true),
            swift_url: Some("swift.test\r\nx: y".into()),
            require_ssl: Some(true),
            ..GatewayOptions::default()
        });
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert_eq!((got.domains, got.sites), (vec!["s3.test".to_string()], vec![]));
        assert!(got.swift.is_some_and(|s| s.url.is_none()) && !got.plain_keys && got.s3);
    }

    /// Gateways began anew for what changed nothing.
    #[test]
    fn what_comes_to_the_same_is_equal() {
        let with = |change: fn(&mut GatewayOptions)| {
            let mut options = GatewayOptions::default();
            change(&mut options);
            options
        };
        let none = GatewayOptions::default;
        // What is so by default; what counts only with another; what cannot be meant.
        let same: [fn(&mut GatewayOptions); 7] = [
            |o| o.s3 = Some(true),
            |o| o.swift = Some(false),
            |o| o.usage_log = Some(false),
            |o| o.gc_wait_s = Some(900),
            |o| o.require_ssl = Some(true),
            |o| o.swift_url = Some("https://swift.test".into()),
            |o| o.domains = vec!["127.0.0.1".into()],
        ];
        for set in same.map(with) {
            assert_eq!(of(set.clone()).0, of(none()).0, "{set:?}");
        }
        let said = with(|o| o.domains = vec!["said.test".into()]);
        let below = with(|o| o.domains = vec!["set.test".into()]);
        assert_eq!(meant(below, &said), meant(none(), &said));
        let others: [fn(&mut GatewayOptions); 6] = [
            |o| o.s3 = Some(false),
            |o| o.swift = Some(true),
            |o| o.usage_log = Some(true),
            |o| o.gc_wait_s = Some(901),
            |o| o.require_ssl = Some(false),
            |o| o.sites = vec!["web.test".into()],
        ];
        for set in others.map(with) {
            assert_ne!(of(set.clone()).0, of(none()).0, "{set:?}");
        }
    }
}
