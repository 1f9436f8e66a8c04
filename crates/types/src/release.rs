//! Ceph's releases as numbers, and the feature bits that encodings and maps depend on
//! (docs/protocol/ceph/03-placement.md, 1.2, 1.4).

/// Number -> name; the wire carries the number.
pub const RELEASES: [(u8, &str); 20] = [
    (1, "argonaut"),
    (2, "bobtail"),
    (3, "cuttlefish"),
    (4, "dumpling"),
    (5, "emperor"),
    (6, "firefly"),
    (7, "giant"),
    (8, "hammer"),
    (9, "infernalis"),
    (10, "jewel"),
    (11, "kraken"),
    (12, "luminous"),
    (13, "mimic"),
    (14, "nautilus"),
    (15, "octopus"),
    (16, "pacific"),
    (17, "quincy"),
    (18, "reef"),
    (19, "squid"),
    (20, "tentacle"),
];

pub const LUMINOUS: u8 = 12;
pub const NAUTILUS: u8 = 14;
pub const PACIFIC: u8 = 16;

/// The release whose protocol and command output Skep speaks; programs compare these.
pub const SPOKEN: u8 = PACIFIC;
pub const SPOKEN_NAME: &str = "pacific";
pub const SPOKEN_VERSION: &str = "16.2.15";
/// Skep's own version.
pub const SKEP_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Both in the form that programs take apart: `ceph version NUMBER (BUILD) RELEASE (CHANNEL)`.
pub const VERSION_TEXT: &str = concat!(
    "ceph version 16.2.15 (skep-",
    env!("CARGO_PKG_VERSION"),
    ") pacific (stable)"
);

/// What a daemon of this build says of its version among its facts.
pub const VERSION_FACTS: [(&str, &str); 4] = [
    ("ceph_release", SPOKEN_NAME),
    ("ceph_version", VERSION_TEXT),
    ("ceph_version_short", SPOKEN_VERSION),
    ("skep_version", SKEP_VERSION),
];

/// In an incremental: no change.
pub const NO_CHANGE: u8 = 0xff;

pub fn name(release: u8) -> &'static str {
    RELEASES
        .iter()
        .find(|(n, _)| *n == release)
        .map_or("unknown", |(_, s)| *s)
}

pub fn from_name(name: &str) -> Option<u8> {
    RELEASES.iter().find(|(_, s)| *s == name).map(|(n, _)| *n)
}

/// Connection feature bits that map encodings and map requirements look at.
pub mod feature {
    pub const SERVER_NAUTILUS: u64 = 1 << 2 | INCARNATION_2;
    pub const PGID64: u64 = 1 << 9;
    pub const PGPOOL3: u64 = 1 << 11;
    pub const OSDENC: u64 = 1 << 13;
    pub const SERVER_OCTOPUS: u64 = 1 << 16 | INCARNATION_2;
    pub const CRUSH_TUNABLES: u64 = 1 << 18;
    pub const SERVER_LUMINOUS: u64 = 1 << 21 | INCARNATION_1;
    pub const CRUSH_CHOOSE_ARGS: u64 = SERVER_LUMINOUS;
    pub const CRUSH_TUNABLES2: u64 = 1 << 25;
    pub const SERVER_MIMIC: u64 = 1 << 28 | INCARNATION_1;
    pub const OSDHASHPSPOOL: u64 = 1 << 30;
    pub const OSDMAP_ENC: u64 = 1 << 39;
    pub const CRUSH_TUNABLES3: u64 = 1 << 41;
    pub const OSD_PRIMARY_AFFINITY: u64 = 1 << 41;
    pub const OSD_POOLRESEND: u64 = 1 << 43;
    pub const CRUSH_V4: u64 = 1 << 48;
    pub const NEW_OSDOP_ENCODING: u64 = 1 << 56;
    pub const CRUSH_TUNABLES5: u64 = 1 << 58;
    pub const MSG_ADDR2: u64 = 1 << 59;
    /// Some bits were given a second meaning, valid together with these.
    const INCARNATION_1: u64 = 1 << 57;
    const INCARNATION_2: u64 = 1 << 57 | 1 << 28;

    /// What the encoding of an OSD map depends on (the field `encode_features` of an incremental).
    pub const OSDMAP_SIGNIFICANT: u64 = PGID64
        | PGPOOL3
        | OSDENC
        | OSDMAP_ENC
        | OSD_POOLRESEND
        | NEW_OSDOP_ENCODING
        | CRUSH_TUNABLES5
        | MSG_ADDR2
        | SERVER_LUMINOUS
        | SERVER_MIMIC
        | SERVER_NAUTILUS
        | SERVER_OCTOPUS;

    /// The connection features of a 16.2.15 OSD, for `OsdXInfo::features`.
    pub const ALL_PACIFIC: u64 = 0x3f01_cfbd_fffd_ffff;
}

#[cfg(test)]
mod version_tests {
    use super::*;

    #[test]
    fn the_text_says_what_the_parts_say() {
        let text = format!("ceph version {SPOKEN_VERSION} (skep-{SKEP_VERSION}) {SPOKEN_NAME} (stable)");
        assert_eq!(VERSION_TEXT, text);
        assert_eq!(name(SPOKEN), SPOKEN_NAME);
    }
}
