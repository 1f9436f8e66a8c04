//! What gateways of objects take of the central configuration: Ceph's options of radosgw that act in ours.
//!
//! They are set for `client.rgw`, as radosgw's are, or for the entity that one gateway is, which counts more. A value that cannot be
//! meant is left out, and told: it keeps no gateway from serving. What is left out opens nothing: a list of APIs without one that is
//! known serves none. What a name of a host is, and a URL, is for the gateway to say.

use super::find;
use crate::config::ConfigDb;
use std::collections::BTreeMap;
use types::AuthName;

/// Bounds of `rgw_gc_obj_min_wait` here: readers that have begun need some of it, and what waits takes room.
const GC_WAIT_S: (u64, u64) = (1, 7 * 86_400);

/// What is served. Its words are checked where it is set: without one that is known S3 is closed.
pub const ENABLE_APIS: &str = "rgw_enable_apis";
const APIS: [&str; 8] = [
    "s3",
    "s3website",
    "swift",
    "swift_auth",
    "admin",
    "sts",
    "iam",
    "notifications",
];

/// None, or empty: it is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Names below which buckets are hosts.
    pub domains: Vec<String>,
    /// Names below which buckets are websites.
    pub sites: Vec<String>,
    pub usage_log: Option<bool>,
    /// Seconds that data stay to which nothing refers any more.
    pub gc_wait_s: Option<u64>,
    pub s3: Option<bool>,
    pub swift: Option<bool>,
    /// Where clients of Swift are told that it is.
    pub swift_url: Option<String>,
    /// Keys of clients are taken by TLS alone.
    pub require_ssl: Option<bool>,
}

impl GatewayOptions {
    /// Of a gateway on `host` that is `who`; and what is wrong with what is set.
    pub fn read(config: &ConfigDb, who: &AuthName, host: &str) -> (Self, Vec<String>) {
        let mut set = Set {
            values: config.for_gateway(who, host),
            wrong: Vec::new(),
        };
        let apis = set.apis();
        let options = Self {
            domains: set.list("rgw_dns_name"),
            sites: set.list("rgw_dns_s3website_name"),
            usage_log: set.is_on("rgw_enable_usage_log"),
            gc_wait_s: set.wait("rgw_gc_obj_min_wait"),
            s3: apis.map(|(s3, _)| s3),
            swift: apis.map(|(_, swift)| swift),
            swift_url: set.text("rgw_swift_url"),
            require_ssl: set.is_on("rgw_crypt_require_ssl"),
        };
        (options, set.wrong)
    }

    /// With what a command line says, which counts more.
    #[must_use]
    pub fn under(self, said: &Self) -> Self {
        let names = |said: &[String], set: Vec<String>| match said {
            [] => set,
            said => said.to_vec(),
        };
        Self {
            domains: names(&said.domains, self.domains),
            sites: names(&said.sites, self.sites),
            usage_log: said.usage_log.or(self.usage_log),
            gc_wait_s: said.gc_wait_s.or(self.gc_wait_s),
            s3: said.s3.or(self.s3),
            swift: said.swift.or(self.swift),
            swift_url: said.swift_url.clone().or(self.swift_url),
            require_ssl: said.require_ssl.or(self.require_ssl),
        }
    }
}

/// The value of [`ENABLE_APIS`]; the error names a word that is none of its.
pub fn check_apis(text: &str) -> Result<String, String> {
    match unknown_apis(text).next() {
        Some(word) => Err(format!("'{word}' is not one of the APIs: {}", APIS.join(", "))),
        None => Ok(text.to_string()),
    }
}

fn unknown_apis(text: &str) -> impl Iterator<Item = &str> {
    words(text).filter(|w| !APIS.contains(w))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|w| !w.is_empty())
}

struct Set<'a> {
    values: BTreeMap<&'a str, &'a str>,
    wrong: Vec<String>,
}

impl Set<'_> {
    /// In canonical form: another cluster's monitors may keep it as it was written.
    fn text(&mut self, name: &str) -> Option<String> {
        let value = self.values.get(name).copied()?.trim();
        let checked = find(name).map_or_else(|| Ok(value.to_string()), |o| o.check(value));
        match checked {
            Ok(value) => Some(value).filter(|v| !v.is_empty()),
            Err(e) => {
                self.wrong.push(format!("{name}: {value:?} is left out: {e}"));
                None
            }
        }
    }

    fn is_on(&mut self, name: &str) -> Option<bool> {
        self.text(name).map(|v| v == "true")
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        words(&text).map(str::to_string).collect()
    }

    fn wait(&mut self, name: &str) -> Option<u64> {
        let seconds: i128 = self.text(name)?.parse().ok()?;
        let (least, most) = GC_WAIT_S;
        let held = u64::try_from(seconds).unwrap_or_default().clamp(least, most);
        if seconds != i128::from(held) {
            let why = format!("{name}: {seconds} is taken as {held}: {least} to {most} are possible");
            self.wrong.push(why);
        }
        Some(held)
    }

    /// Whether S3 is among them, and whether Swift is. Words that are none come by force, or from another cluster's monitors. A list of
    /// these alone serves neither: taken as not set it would open S3.
    fn apis(&mut self) -> Option<(bool, bool)> {
        let text = self.values.get(ENABLE_APIS).copied()?.trim();
        let wrong = |word: &str| format!("{ENABLE_APIS}: {word:?} is left out: there is no such API");
        self.wrong.extend(unknown_apis(text).map(wrong));
        let has = |api: &str| words(text).any(|w| w == api);
        (!text.is_empty()).then(|| (has("s3"), has("swift")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rows: &[(&str, &str, &str)]) -> ConfigDb {
        let mut db = ConfigDb::default();
        for (section, name, value) in rows {
            db.put(section, name, Some(*value));
        }
        db
    }

    fn read(rows: &[(&str, &str, &str)]) -> (GatewayOptions, Vec<String>) {
        GatewayOptions::read(&config(rows), &"client.s3".parse().unwrap(), "h1")
    }

    #[test]
    fn nothing_is_set_where_nothing_is() {
        let others = [
            ("osd", "rgw_dns_name", "x"),
            ("client.vm", "rgw_dns_name", "y"),
            ("client", "rbd_cache", "true"),
        ];
        assert_eq!(read(&others), (GatewayOptions::default(), vec![]));
        // Taken back, as `config set client.rgw rgw_dns_name ""` does it.
        let taken_back = [
            ("client", "rgw_dns_name", "a"),
            ("client.rgw", "rgw_dns_name", ""),
        ];
        assert_eq!(read(&taken_back).0.domains, [""; 0]);
    }

    #[test]
    fn each_option_is_read() {
        let (got, wrong) = read(&[
            ("client.rgw", "rgw_dns_name", "s3.test, eu.s3.test"),
            ("client.rgw", "rgw_dns_s3website_name", "web.test"),
            ("client.rgw", "rgw_enable_usage_log", "1"),
            ("client.rgw", "rgw_gc_obj_min_wait", "7200"),
            (
                "client.rgw",
                "rgw_enable_apis",
                "s3, s3website, swift, swift_auth, admin",
            ),
            ("client.rgw", "rgw_swift_url", "https://swift.test"),
            ("client.rgw", "rgw_crypt_require_ssl", "no"),
        ]);
        let want = GatewayOptions {
            domains: vec!["s3.test".into(), "eu.s3.test".into()],
            sites: vec!["web.test".into()],
            usage_log: Some(true),
            gc_wait_s: Some(7200),
            s3: Some(true),
            swift: Some(true),
            swift_url: Some("https://swift.test".into()),
            require_ssl: Some(false),
        };
        assert_eq!((got, wrong), (want, vec![]));
    }

    #[test]
    fn the_most_special_section_counts() {
        let mut rows = vec![];
        for (section, name) in [
            ("global", "global.test"),
            ("client", "client.test"),
            ("client.rgw", "rgw.test"),
            ("client.s3", "own.test"),
            ("global/host:h2", "elsewhere.test"),
            ("global/host:h1", "here.test"),
        ] {
            rows.push((section, "rgw_dns_name", name));
            let want = if name == "elsewhere.test" {
                "own.test"
            } else {
                name
            };
            assert_eq!(read(&rows).0.domains, [want], "{section}");
        }
        // Of a name below radosgw's, as they are deployed.
        let below = "client.rgw.a".parse().unwrap();
        let set = config(&[
            ("client.rgw", "rgw_dns_name", "rgw.test"),
            ("client.rgw.a", "rgw_dns_name", "a.test"),
        ]);
        assert_eq!(GatewayOptions::read(&set, &below, "").0.domains, ["a.test"]);
    }

    #[test]
    fn what_cannot_be_meant_is_left_out_and_told() {
        let (got, wrong) = read(&[
            ("client", "rgw_enable_usage_log", "maybe"),
            ("client", "rgw_crypt_require_ssl", "perhaps"),
            ("client", "rgw_gc_obj_min_wait", "soon"),
        ]);
        assert_eq!(got, GatewayOptions::default());
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        for (text, want, wrong) in [
            ("-5", 1, 1),
            ("0", 1, 1),
            ("2", 2, 0),
            ("604800", 604_800, 0),
            ("99999999", 604_800, 1),
            ("18446744073709551615", 604_800, 1),
        ] {
            let got = read(&[("client", "rgw_gc_obj_min_wait", text)]);
            assert_eq!((got.0.gc_wait_s, got.1.len()), (Some(want), wrong), "{text}");
        }
    }

    /// A typing error opened what had been closed.
    #[test]
    fn what_is_no_api_opens_nothing() {
        for (text, s3, swift, wrong) in [
            ("swift,swift_auth", false, true, 0),
            ("s3, swfit", true, false, 1),
            ("s3website", false, false, 0),
            ("swfit", false, false, 1),
            ("s4,s5", false, false, 2),
            (",", false, false, 0),
        ] {
            let got = read(&[
                ("client", "rgw_enable_apis", "s3"),
                ("client.rgw", "rgw_enable_apis", text),
            ]);
            assert_eq!((got.0.s3, got.0.swift), (Some(s3), Some(swift)), "{text}");
            assert_eq!(got.1.len(), wrong, "{text}");
        }
        // Not set: as it is by default.
        assert_eq!(read(&[("client", "rgw_enable_apis", " ")]).0.s3, None);
    }

    #[test]
    fn a_command_line_counts_more() {
        let set = read(&[
            ("client", "rgw_dns_name", "set.test"),
            ("client", "rgw_dns_s3website_name", "web.test"),
            ("client", "rgw_enable_apis", "s3"),
            ("client", "rgw_crypt_require_ssl", "true"),
        ]);
        let said = GatewayOptions {
            domains: vec!["said.test".into()],
            swift: Some(true),
            require_ssl: Some(false),
            ..GatewayOptions::default()
        };
        let got = set.0.under(&said);
        assert_eq!(got.domains, ["said.test"]);
        assert_eq!(got.sites, ["web.test"]);
        assert_eq!(
            (got.s3, got.swift, got.require_ssl),
            (Some(true), Some(true), Some(false))
        );
    }
}
