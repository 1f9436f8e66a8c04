//! The rules of the house, as data that tests check: which crate may import which, what must be absent from
//! which, and who may use which library.
//!
//! Vocabulary: a crate's *layer* is its height; it imports only crates of lower layers, or of the same layer where
//! the table says so. *Pure* layers (0 and 1) are logic without I/O: bytes and times in, bytes and decisions out.
//!
//! Clippy checks most of what is forbidden by name (`clippy.toml`); these tests also see what clippy does not:
//! the direction of imports and the libraries behind them; and in the sources ([`source`]) what nobody uses, circles of
//! modules ([`modules`]), names of files that are gone, and what grows. Not here: style that rustfmt or clippy can see.

pub mod modules;
pub mod source;

pub mod rooms;

/// A crate, its layer, and the crates of its own layer that it may import.
pub struct Layer {
    pub name: &'static str,
    pub height: u8,
    pub beside: &'static [&'static str],
}

const fn layer(height: u8, name: &'static str, beside: &'static [&'static str]) -> Layer {
    Layer { name, height, beside }
}

/// Every crate of the workspace, from the bottom up. ARCHITECTURE.md shows the same picture.
pub const LAYERS: &[Layer] = &[
    layer(0, "denc", &[]),
    layer(0, "crush", &["denc"]),
    layer(0, "types", &["denc", "crush"]),
    layer(0, "auth", &["denc", "types"]),
    layer(0, "metrics", &[]),
    layer(0, "account", &["metrics"]),
    layer(0, "erasure", &[]),
    layer(0, "forms", &[]),
    layer(0, "cluster", &["denc", "crush", "types", "auth"]),
    layer(1, "msgr", &[]),
    layer(1, "messages", &["msgr"]),
    layer(1, "objclass", &[]),
    layer(1, "pg", &["messages", "objclass"]),
    layer(2, "io", &[]),
    layer(2, "io-sim", &["io"]),
    layer(2, "store", &["io"]),
    layer(2, "metastore", &["io"]),
    layer(2, "etcd", &["io", "metastore"]),
    layer(3, "net", &[]),
    layer(4, "mon", &[]),
    layer(4, "osd", &[]),
    layer(4, "client", &[]),
    layer(4, "rbd", &["client"]),
    layer(4, "mds", &["client"]),
    layer(4, "cephfs", &["client"]),
    layer(4, "mount", &["client", "cephfs"]),
    layer(4, "s3", &["client"]),
    layer(4, "stages", &["client", "rbd"]),
    layer(4, "webconsole", &["client", "rbd", "stages"]),
    layer(4, "alarms", &[]),
    layer(4, "rbd_support", &["client", "rbd"]),
    layer(4, "backup", &["client", "rbd"]),
    layer(4, "volumes", &["client", "cephfs", "rbd_support"]),
    layer(5, "node", &[]),
    layer(5, "skep", &["node"]),
    layer(5, "simtest", &[]),
    layer(5, "hostile", &[]),
    layer(5, "model", &[]),
    layer(5, "house", &[]),
];

/// The highest layer that is logic without I/O.
pub const PURE_MAX: u8 = 1;

pub fn layer_of(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|l| l.name == name)
}

/// A library from outside, and the only crates that may import it.
pub struct Library {
    pub name: &'static str,
    pub users: &'static [&'static str],
}

const fn library(name: &'static str, users: &'static [&'static str]) -> Library {
    Library { name, users }
}

/// Libraries that do I/O, read clocks, start threads or hold state. A library that is not here is plain
/// computation, and any crate may use it. Development dependencies are not looked at.
pub const LIBRARIES: &[Library] = &[
    library("aws-lc-rs", &["auth", "msgr", "io", "backup", "s3", "skep"]),
    library("aws-lc-sys", &["io"]),
    library("clap", &["skep"]),
    library("clap_complete", &["skep"]),
    library("clap_mangen", &["skep"]),
    library("etcd-client", &["etcd"]),
    library("fuser", &["mount"]),
    library("hyper", &["net", "node", "s3", "webconsole"]),
    library("hyper-util", &["net"]),
    library("indicatif", &["skep"]),
    library("lettre", &["alarms"]),
    library("libc", &["io", "io-sim"]),
    library("rcgen", &["webconsole"]),
    library("redb", &["metastore", "store"]),
    library("rustix", &["io"]),
    library("rustls", &["net"]),
    library("rustls-native-certs", &["net"]),
    library("s3s", &["s3"]),
    library("sd-notify", &["skep"]),
    library("signal-hook", &["io", "skep"]),
    library("socket2", &["io"]),
    library("tempfile", &[]),
    library(
        "tokio",
        &[
            "io",
            "io-sim",
            "metastore",
            "etcd",
            "net",
            "mon",
            "osd",
            "client",
            "rbd",
            "mds",
            "cephfs",
            "mount",
            "rbd_support",
            "volumes",
            "s3",
            "webconsole",
            "node",
            "simtest",
        ],
    ),
    library("tokio-rustls", &["net"]),
    library("tracing-subscriber", &["skep", "simtest"]),
];

/// Text that must not appear in the code of crates, tests aside.
pub struct Absent {
    pub text: &'static str,
    /// Where it may.
    pub except: &'static [&'static str],
    pub instead: &'static str,
}

const fn absent(text: &'static str, except: &'static [&'static str], instead: &'static str) -> Absent {
    Absent {
        text,
        except,
        instead,
    }
}

/// The program may print, and wait for its own server; `hostile` reads the vectors; `house` itself is tests only.
pub const ABSENT: &[Absent] = &[
    absent("Instant::now", &["simtest", "io", "io-sim", "skep"], "io::clock"),
    absent("SystemTime::now", &["io", "skep"], "io::clock"),
    absent("std::fs::", &["io", "skep", "hostile"], "io::file, io::disk"),
    absent("File::open", &["io", "skep"], "io::file, io::disk"),
    absent("OpenOptions", &["io"], "io::file, io::disk"),
    absent("TcpStream::", &["io"], "io::socket"),
    absent("TcpListener::", &["io"], "io::socket"),
    absent("UdpSocket::", &["io"], "io::socket"),
    absent("std::thread::spawn", &["simtest", "io", "skep"], "io::thread"),
    absent(
        "std::thread::sleep",
        &["simtest", "io", "skep"],
        "an event or a timer of io",
    ),
    absent("std::thread::Builder", &["io", "skep"], "io::thread"),
    absent("getrandom", &["io", "io-sim"], "io::random"),
    absent("::rand::", &["io"], "io::random"),
    absent("println!", &["simtest", "skep"], "tracing, or a returned value"),
    absent("print!(", &["simtest", "skep"], "tracing, or a returned value"),
    absent("dbg!", &[], "tracing"),
    absent("todo!", &[], "an error that says what is not built"),
    absent("unimplemented!", &[], "an error that says what is not built"),
    absent("process::exit", &["simtest", "skep"], "a returned error"),
];
