//! The grammar of `skep s3`.

use crate::options::{ClusterArgs, Format, pair, parse_size};
use clap::{Args as ClapArgs, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

pub const LISTEN: &str = "127.0.0.1:7480";

#[derive(Debug, ClapArgs)]
pub struct S3 {
    #[command(subcommand)]
    pub command: S3Command,
}

impl S3 {
    /// It serves, and has a log.
    pub fn is_server(&self) -> bool {
        matches!(self.command, S3Command::Serve(_))
    }
}

#[derive(Debug, Subcommand)]
pub enum S3Command {
    /// Serve S3 in front of a cluster, ours or Ceph's, until it is told to stop
    Serve(Box<Serve>),
    /// Make, show and remove users
    User(User),
    /// Make, change and remove subusers, who speak Swift
    Subuser(Subuser),
    /// Make and remove keys of users
    Key(Key),
    /// Make, change and remove roles, which users take for a while (STS)
    Role(RoleArgs),
    /// What sessions of roles may do
    RolePolicy(RolePolicy),
    /// What users may do as administrators
    Caps(Caps),
    /// What buckets hold, with their quotas: most first
    Bucket(Bucket),
    /// How much users and buckets may hold
    Quota(Quota),
    /// How much users and buckets may ask of each gateway in a minute
    Ratelimit(Ratelimit),
    /// Storage classes, and the pools that their data are in
    Placement(Placement),
    /// What was asked, by users, buckets, hours and operations: where rgw_enable_usage_log is on
    Usage(Usage),
    /// Look whether what is written fits together; changes nothing, and gateways may go on. Fails where something does not
    Check(Check),
}

#[derive(Debug, ClapArgs)]
pub struct Placement {
    #[command(subcommand)]
    pub command: PlacementCommand,
}

#[derive(Debug, Subcommand)]
pub enum PlacementCommand {
    /// Have a storage class, or one that was withdrawn take what is put again
    Add {
        /// In capitals, digits, _ and -; clients' libraries may know AWS's names alone, as STANDARD_IA and GLACIER
        #[arg(long, value_name = "CLASS")]
        storage_class: String,
        /// A pool that is there, and has no other use; it stays the one of this class
        #[arg(long, value_name = "POOL")]
        data_pool: String,
        #[command(flatten)]
        how: How,
    },
    /// Show them
    Ls {
        #[command(flatten)]
        how: How,
    },
    /// Have a storage class take nothing new; what is in it stays, and is read as before
    Rm {
        #[arg(long, value_name = "CLASS")]
        storage_class: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Check {
    /// One bucket; else all
    #[arg(value_name = "BUCKET")]
    pub bucket: Option<String>,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, ClapArgs)]
pub struct Serve {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Address to listen on; what is not loopback wants --s3-cert, or a proxy with TLS in front
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    pub listen: SocketAddr,
    /// Address of /metrics for Prometheus, in plain HTTP for whoever asks; else there is none
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// As /metrics calls this gateway, which tells it from others; else its machine and port
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_name: Option<String>,
    #[command(flatten)]
    pub tuning: Tuning,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Tuning {
    /// rgw_dns_name
    #[arg(long = "s3-domain", value_name = "NAME", hide = true, value_parser = ::s3::domain)]
    pub domains: Vec<String>,
    /// rgw_dns_s3website_name
    #[arg(long = "s3-website-domain", value_name = "NAME", hide = true, value_parser = ::s3::domain)]
    pub sites: Vec<String>,
    /// Certificate, with its chain, and its key in PEM; read again when they change. With it S3 is served by TLS alone
    #[arg(long = "s3-cert", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The key, where it is in a file of its own
    #[arg(
        id = "s3_key_file",
        long = "s3-key",
        value_name = "FILE",
        hide = true,
        requires = "cert"
    )]
    pub key: Option<PathBuf>,
    /// rgw_enable_usage_log
    #[arg(long = "s3-usage-log", hide = true)]
    pub usage_log: bool,
    /// Days after which what the usage log has (rgw_enable_usage_log) goes, 1 to 36500
    #[arg(long = "s3-usage-keep", value_name = "DAYS", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub usage_days: u64,
    /// File with keys of the gateway's own (SSE-S3): lines with a name and 32 bytes in base64. The first encrypts, all decrypt
    #[arg(long = "s3-master-key", value_name = "FILE")]
    pub master_keys: Option<PathBuf>,
    /// rgw_crypt_require_ssl
    #[arg(long = "s3-customer-keys-without-tls", hide = true)]
    pub plain_keys: bool,
    /// rgw_enable_apis
    #[arg(long = "s3-swift", hide = true)]
    pub swift: bool,
    /// rgw_swift_url
    #[arg(long = "s3-swift-url", value_name = "URL", hide = true, value_parser = node::gateway::url)]
    pub swift_url: Option<String>,
    /// File that says which Keystone is asked about tokens of Swift and keys of EC2 that are not ours, and as whom: lines NAME = VALUE, for its owner's eyes alone
    #[arg(long = "s3-keystone", value_name = "FILE")]
    pub keystone: Option<PathBuf>,
    /// A host that users may have events sent to (NAME, ADDRESS or *.NAME); can be given several times. Without it: any but this machine's own and link-local addresses
    #[arg(long = "s3-notify-host", value_name = "HOST")]
    pub endpoints: Vec<String>,
    /// Seconds after which the access logs of buckets are put as objects
    #[arg(long = "s3-access-log-every", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub log_every: u64,
    /// rgw_gc_obj_min_wait
    #[arg(long = "s3-gc-wait", value_name = "SECONDS", hide = true, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub gc_wait: Option<u64>,
    /// Keys of a part of a bucket's index before it is split; for tests
    #[arg(long = "s3-split-at", value_name = "N", default_value_t = 10_000, hide = true, value_parser = clap::value_parser!(u64).range(16..))]
    pub split_at: u64,
    /// Seconds of a day, as lifecycles of buckets count; for tests: what has a term goes before its time
    #[arg(long = "s3-lifecycle-day", value_name = "SECONDS", default_value_t = 86_400, hide = true, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub lifecycle_day: u64,
}

impl Tuning {
    /// Files with certificate and key, if S3 is served by TLS.
    pub fn tls(&self) -> Option<(PathBuf, PathBuf)> {
        pair(self.cert.as_ref(), self.key.as_ref())
    }

    /// What counts more than the options of the cluster that have the same meaning.
    pub fn said(&self) -> node::GatewayOptions {
        node::GatewayOptions {
            domains: self.domains.clone(),
            sites: self.sites.clone(),
            usage_log: self.usage_log.then_some(true),
            gc_wait_s: self.gc_wait,
            s3: None,
            swift: self.swift.then_some(true),
            swift_url: self.swift_url.clone(),
            require_ssl: self.plain_keys.then_some(false),
        }
    }

    pub fn scheme(&self) -> &'static str {
        if self.tls().is_some() { "https" } else { "http" }
    }
}

#[derive(Debug, ClapArgs)]
pub struct User {
    #[command(subcommand)]
    pub command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user, and print the first key
    Create {
        #[arg(value_name = "USER")]
        user: String,
        #[arg(long, value_name = "TEXT", default_value = "")]
        display_name: String,
        #[command(flatten)]
        how: How,
    },
    /// List users
    Ls {
        #[command(flatten)]
        how: How,
    },
    /// Show a user with keys and buckets
    Info {
        #[arg(value_name = "USER")]
        user: String,
        #[command(flatten)]
        how: How,
    },
    /// Remove a user who has no buckets, with all keys
    Rm {
        #[arg(value_name = "USER")]
        user: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Key {
    #[command(subcommand)]
    pub command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a further key for a user, or the one of a subuser anew, and print it
    Create {
        #[arg(value_name = "USER", required_unless_present = "subuser")]
        user: Option<String>,
        #[command(flatten)]
        of: KeyOf,
        #[command(flatten)]
        how: How,
    },
    /// Remove a key; requests signed with it are refused from then on, and tokens that were got with it
    Rm {
        #[arg(value_name = "ACCESS_KEY", required_unless_present = "subuser")]
        access_key: Option<String>,
        #[command(flatten)]
        of: KeyOf,
        #[command(flatten)]
        how: How,
    },
}

/// Keys of Swift are of subusers, one of each.
#[derive(Debug, Clone, ClapArgs)]
pub struct KeyOf {
    #[arg(long, value_enum, value_name = "TYPE")]
    pub key_type: Option<KeyType>,
    /// USER:NAME
    #[arg(long, value_name = "SUBUSER", requires = "key_type")]
    pub subuser: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    S3,
    Swift,
}

#[derive(Debug, ClapArgs)]
pub struct RoleArgs {
    #[command(subcommand)]
    pub command: RoleCommand,
}

#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Make a role; its sessions may do nothing until it has policies
    Create {
        #[command(flatten)]
        which: WhichRole,
        /// A user: buckets that its sessions make are his, and of what he may do in his buckets they do what the policies of the role allow
        #[arg(long, value_name = "USER")]
        uid: String,
        /// Who may take it: a policy in JSON, or @FILE
        #[arg(long, value_name = "JSON", value_parser = parse_document)]
        assume_role_policy_doc: Document,
        /// Seconds that its sessions may last, 3600 to 43200
        #[arg(long, value_name = "SECONDS", default_value_t = ::s3::SESSION_DEFAULT)]
        max_session_duration: u64,
        /// Also of a name that was another user's: buckets whose policies still name it let the new role in
        #[arg(long)]
        force: bool,
    },
    /// Show a role with its policies
    #[command(alias = "info")]
    Get {
        #[command(flatten)]
        which: WhichRole,
    },
    /// List roles
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        how: How,
    },
    /// Change who may take it, or for how long
    Modify {
        #[command(flatten)]
        which: WhichRole,
        /// Who may take it: a policy in JSON, or @FILE
        #[arg(long, value_name = "JSON", value_parser = parse_document, required_unless_present = "max_session_duration")]
        assume_role_policy_doc: Option<Document>,
        /// Seconds that its sessions may last, 3600 to 43200
        #[arg(long, value_name = "SECONDS")]
        max_session_duration: Option<u64>,
    },
    /// Remove it, with its policies; its sessions are refused from then on
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        which: WhichRole,
    },
}

#[derive(Debug, ClapArgs)]
pub struct RolePolicy {
    #[command(subcommand)]
    pub command: RolePolicyCommand,
}

#[derive(Debug, Subcommand)]
pub enum RolePolicyCommand {
    /// Add a policy of what its sessions may do, or replace it
    Put {
        #[command(flatten)]
        which: WhichPolicy,
        /// In JSON, or @FILE
        #[arg(long, value_name = "JSON", value_parser = parse_document)]
        policy_doc: Document,
    },
    /// Show one
    Get {
        #[command(flatten)]
        which: WhichPolicy,
    },
    /// List their names
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        which: WhichRole,
    },
    /// Remove one
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        which: WhichPolicy,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Caps {
    #[command(subcommand)]
    pub command: CapsCommand,
}

#[derive(Debug, Subcommand)]
pub enum CapsCommand {
    /// Give a user some
    Add {
        #[command(flatten)]
        whose: CapsOf,
    },
    /// Take some away
    Rm {
        #[command(flatten)]
        whose: CapsOf,
    },
}

#[derive(Debug, Clone, ClapArgs)]
pub struct CapsOf {
    #[arg(long, value_name = "USER")]
    pub uid: String,
    /// roles=read, roles=write or roles=*: show, or make and change, roles of his own by IAM; users=...: all users, and their keys (an administrator's); several with a semicolon between them
    #[arg(long, value_name = "CAPS")]
    pub caps: String,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct WhichRole {
    #[arg(long, value_name = "ROLE")]
    pub role_name: String,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct WhichPolicy {
    #[command(flatten)]
    pub role: WhichRole,
    #[arg(long, value_name = "POLICY")]
    pub policy_name: String,
}

/// A text in JSON.
#[derive(Debug, Clone)]
pub struct Document(pub String);

fn parse_document(text: &str) -> Result<Document, String> {
    match text.strip_prefix('@') {
        None => Ok(Document(text.to_string())),
        Some(file) => std::fs::read_to_string(file)
            .map(Document)
            .map_err(|e| format!("{file}: {e}")),
    }
}

#[derive(Debug, ClapArgs)]
pub struct Subuser {
    #[command(subcommand)]
    pub command: SubuserCommand,
}

#[derive(Debug, Subcommand)]
pub enum SubuserCommand {
    /// Make one, and print its key
    Create {
        #[command(flatten)]
        whom: Whom,
        /// read, write, readwrite, full (and change who else may)
        #[arg(long, value_name = "ACCESS", value_parser = ::s3::Access::parse)]
        access: ::s3::Access,
    },
    /// Change what it may do; its tokens of before are good for nothing
    Modify {
        #[command(flatten)]
        whom: Whom,
        #[arg(long, value_name = "ACCESS", value_parser = ::s3::Access::parse)]
        access: ::s3::Access,
    },
    /// Remove it, with its key
    Rm {
        #[command(flatten)]
        whom: Whom,
    },
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Whom {
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    /// USER:NAME, or a name with --uid
    #[arg(long, value_name = "SUBUSER")]
    pub subuser: String,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct How {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
}

#[derive(Debug, ClapArgs)]
pub struct Bucket {
    #[command(subcommand)]
    pub command: BucketCommand,
}

#[derive(Debug, Subcommand)]
pub enum BucketCommand {
    /// Bytes and objects of one bucket, or of all, as gateways have counted them
    Stats {
        #[arg(long, value_name = "BUCKET")]
        bucket: Option<String>,
        /// Of this user
        #[arg(long, value_name = "USER", conflicts_with = "bucket")]
        uid: Option<String>,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Quota {
    #[command(subcommand)]
    pub command: QuotaCommand,
}

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Set how much may be there; it counts once it is enabled
    Set {
        /// Bytes, or with K, M, G, T, P; -1: as much as there is
        #[arg(long, value_name = "SIZE", value_parser = parse_max_size, allow_negative_numbers = true, required_unless_present = "max_objects")]
        max_size: Option<i64>,
        /// Versions count, delete markers, too; -1: as many as there are
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        max_objects: Option<i64>,
        #[command(flatten)]
        whose: Whose,
    },
    /// Have it count
    Enable {
        #[command(flatten)]
        whose: Whose,
    },
    /// Have it not count; what was set stays
    Disable {
        #[command(flatten)]
        whose: Whose,
    },
    /// Show it
    Get {
        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Whose {
    /// user: of all buckets of a user together; bucket: of each bucket
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub quota_scope: Option<QuotaScope>,
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    /// One bucket
    #[arg(long, value_name = "BUCKET", conflicts_with = "uid")]
    pub bucket: Option<String>,
    /// Of users who have nothing of their own
    #[arg(long, conflicts_with_all = ["uid", "bucket"])]
    pub default: bool,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum QuotaScope {
    User,
    Bucket,
}

#[derive(Debug, ClapArgs)]
pub struct Usage {
    #[command(subcommand)]
    pub command: UsageCommand,
}

#[derive(Debug, Subcommand)]
pub enum UsageCommand {
    /// Show it
    Show {
        /// These operations alone
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        categories: Vec<String>,
        /// Each hour
        #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
        show_log_entries: bool,
        /// The sums of users
        #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
        show_log_sum: bool,
        #[command(flatten)]
        of: UsageOf,
    },
    /// Remove it
    Trim {
        /// Of all users, and all of it
        #[arg(long = "yes-i-really-mean-it")]
        really: bool,
        #[command(flatten)]
        of: UsageOf,
    },
}

#[derive(Debug, Clone, ClapArgs)]
pub struct UsageOf {
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Option<String>,
    /// Hours that begin from this time on: YYYY-MM-DD, or YYYY-MM-DD HH:MM:SS, in UTC
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    pub start_date: Option<u64>,
    /// And before this one
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    pub end_date: Option<u64>,
    #[command(flatten)]
    pub how: How,
}

#[derive(Debug, ClapArgs)]
pub struct Ratelimit {
    #[command(subcommand)]
    pub command: RatelimitCommand,
}

#[derive(Debug, Subcommand)]
pub enum RatelimitCommand {
    /// Set how much may be asked in a minute; it counts once it is enabled. 0: as much as comes
    Set {
        #[command(flatten)]
        most: Most,
        #[command(flatten)]
        whose: RateOf,
    },
    /// Have it count
    Enable {
        #[command(flatten)]
        whose: RateOf,
    },
    /// Have it not count; what was set stays
    Disable {
        #[command(flatten)]
        whose: RateOf,
    },
    /// Show it
    Get {
        #[command(flatten)]
        whose: RateOf,
    },
}

#[derive(Debug, Clone, ClapArgs)]
#[group(required = true, multiple = true)]
pub struct Most {
    /// GET and HEAD
    #[arg(long, value_name = "N")]
    pub max_read_ops: Option<u64>,
    /// All others
    #[arg(long, value_name = "N")]
    pub max_write_ops: Option<u64>,
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub max_read_bytes: Option<u64>,
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub max_write_bytes: Option<u64>,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct RateOf {
    /// As --uid and --bucket say already
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub ratelimit_scope: Option<QuotaScope>,
    #[arg(long, value_name = "USER", required_unless_present = "bucket")]
    pub uid: Option<String>,
    #[arg(long, value_name = "BUCKET", conflicts_with = "uid")]
    pub bucket: Option<String>,
    #[command(flatten)]
    pub how: How,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    text.parse().or_else(|_| parse_size(text))
}

fn parse_max_size(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(n) => Ok(n.max(-1)),
        Err(_) => parse_size(text).map(|n| n as i64),
    }
}

/// Milliseconds since 1970 of `2026-11-26`, or of that day and a time, in UTC.
fn parse_date(text: &str) -> Result<u64, String> {
    let padded = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        _ => format!("{}Z", text.trim_end_matches('Z')),
    };
    let at = backup::time::parse(&padded).map(|s| s * 1000);
    at.ok_or_else(|| "a date is YYYY-MM-DD, or YYYY-MM-DD HH:MM:SS, in UTC".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, ms) in [
            ("1970-01-02", 86_400_000),
            ("2026-11-26", 1_795_651_200_000),
            ("2026-11-26 16:00:00", 1_795_708_800_000),
            ("2026-11-26T16:00:00Z", 1_795_708_800_000),
        ] {
            assert_eq!(parse_date(text), Ok(ms), "{text}");
        }
        for text in ["", "x", "2026-13-01", "2026-11-26 25:00:00", "26.11.2026"] {
            assert!(parse_date(text).is_err(), "{text}");
        }
    }
}
