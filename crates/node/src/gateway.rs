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

/// Puts `options` into a gateway's settings. What cannot be meant is left out, and told. `usage_days`: how long the usage log is kept.
pub fn apply(options: &GatewayOptions, usage_days: u64, to: &mut Settings) -> Vec<String> {
    let mut wrong = Vec::new();
    to.domains = names("rgw_dns_name", &options.domains, &mut wrong);
    to.sites = names("rgw_dns_s3website_name", &options.sites, &mut wrong);
    to.usage_keep = options.usage_log.unwrap_or_default().then_some(usage_days);
    if let Some(seconds) = options.gc_wait_s {
        to.gc_wait = Duration::from_secs(seconds);
    }
    to.plain_keys = options.require_ssl == Some(false);
    to.s3 = options.s3.unwrap_or(true);
    let told = options.swift_url.as_deref().map(url).transpose();
    let url = told.unwrap_or_else(|e| {
        wrong.push(format!("rgw_swift_url is left out: {e} is wanted"));
        None
    });
    to.swift = options.swift.unwrap_or_default().then_some(Swift { url });
    wrong
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

    fn settings(options: &GatewayOptions) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let wrong = apply(options, 400, &mut settings);
        (settings, wrong)
    }

    #[test]
    fn each_option_acts() {
        let (of_nothing, wrong) = settings(&GatewayOptions::default());
        assert!(wrong.is_empty() && of_nothing.s3 && of_nothing.swift.is_none() && !of_nothing.plain_keys);
        assert!(of_nothing.domains.is_empty() && of_nothing.usage_keep.is_none());
        assert_eq!(of_nothing.gc_wait, Duration::from_secs(900));
        let (got, wrong) = settings(&GatewayOptions {
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
        assert_eq!((got.domains, got.sites), (vec!["s3.test".into()], vec!["web.test".into()]));
        assert_eq!((got.usage_keep, got.gc_wait), (Some(400), Duration::from_secs(7200)));
        assert_eq!(got.swift.and_then(|s| s.url).as_deref(), Some("https://swift.test"));
    }

    #[test]
    fn what_cannot_be_meant_keeps_nobody_from_serving() {
        let (got, wrong) = settings(&GatewayOptions {
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
}
