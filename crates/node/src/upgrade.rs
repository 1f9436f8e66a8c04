//! `skep upgrade check`: what this program would make of a machine that another release serves, before it replaces that one.
//!
//! Invariant: nothing is written or opened for writing, here or in etcd, and no store is locked. Of a state in a file a copy is read: that which lies beside an
//! OSD while a process serves the directory, the file itself, in memory, while none does. OSDs are those of the settings: what lies in directories of others
//! is nobody's any more.
//!
//! Bounds: [`ETCD_WITHIN`] for etcd; a file of the state as `metastore` bounds it.
//!
//! Not here: the versions themselves ([`crate::formats`]).

use crate::copies;
use crate::formats::{self, Bit, Form};
use crate::platform::Platform;
use crate::state::{bad, etcd_store};
use crate::{DataDir, Error, EtcdSettings, Settings};
use bytes::Bytes;
use cluster::ClusterState;
use cluster::format::Format;
use cluster::rows::Row;
use denc::Decode;
use io::disk::sealed;
use io::files::{self, Holder};
use io::key_file::KeyFile;
use metastore::Kv;
use metastore::kv::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{OsdId, Uuid};

const ETCD_WITHIN: Duration = Duration::from_secs(10);
/// Where seals and copies have their version, behind their magic.
const VERSION_AT: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// This program goes on with it, and a start changes nothing that the release before could not read.
    Good,
    /// It is not looked at: who serves it looks by itself.
    NotSeen,
    /// A start changes it, and the release before does not read it any more.
    OneWay,
    /// This program would refuse it.
    Refused,
}

/// One form at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: &'static str,
    pub place: String,
    /// Its version; None: it could not be told.
    pub version: Option<u64>,
    pub writes: u64,
    pub reads_from: u64,
    /// A start of this program would change it.
    pub converts: bool,
    /// The release before reads it afterwards.
    pub way_back: bool,
    pub verdict: Verdict,
    pub text: String,
}

/// Everything that the data directory and the cluster's state hold.
pub async fn check(dir: &Path, keys: Option<&KeyFile>) -> Result<Vec<Found>, Error> {
    let dir = DataDir::existing(dir)?;
    let (settings, first) = directory(&dir)?;
    let mut found = vec![first];
    let Some(settings) = settings else {
        return Ok(found);
    };
    let fsid = settings.fsid()?;
    let osds = osds(&dir, &settings);
    for osd in &osds {
        match &osd.made {
            Ok(true) => {
                found.extend(seal(&osd.path));
                found.push(store(osd, fsid, keys));
                found.extend(copy(&osd.path));
            }
            // The state says whether there should be one.
            Ok(false) => {}
            Err(why) => found.extend(refused(
                formats::STORE,
                osd.path.display().to_string(),
                why.clone(),
            )),
        }
    }
    found.extend(state(&dir, &settings, &osds).await?);
    Ok(found)
}

/// What a form of this version is to this program; a start leaves it as it is.
fn judge(name: &str, place: String, version: u64) -> Option<Found> {
    let form = formats::form(name)?;
    let way_back = version <= form.before;
    let (verdict, text) = if version > form.writes {
        let text = format!(
            "a newer Skep has written version {version}; this one reads up to {}",
            form.writes
        );
        (Verdict::Refused, text)
    } else if version < form.reads_from {
        let text = format!(
            "version {version} is older than this program reads (from {} on): go by a release between",
            form.reads_from
        );
        (Verdict::Refused, text)
    } else if way_back {
        (Verdict::Good, "stays as it is".to_string())
    } else {
        let text =
            "stays as it is; the release before does not read it, so no machine with it goes back there";
        (Verdict::Good, text.to_string())
    };
    Some(Found {
        version: Some(version),
        way_back: way_back && verdict == Verdict::Good,
        verdict,
        text,
        ..blank(&form, place)
    })
}

fn blank(form: &Form, place: String) -> Found {
    Found {
        name: form.name,
        place,
        version: None,
        writes: form.writes,
        reads_from: form.reads_from,
        converts: false,
        way_back: false,
        verdict: Verdict::Refused,
        text: String::new(),
    }
}

fn refused(name: &str, place: String, why: String) -> Option<Found> {
    let form = formats::form(name)?;
    Some(Found {
        text: why,
        ..blank(&form, place)
    })
}

/// The settings, where this program reads them.
fn directory(dir: &DataDir) -> Result<(Option<Settings>, Found), Error> {
    let path = dir.settings_path();
    let place = path.display().to_string();
    let gone = || Error::NoStore(dir.root().to_path_buf());
    match dir.settings() {
        Ok(settings) => {
            let settings = settings.ok_or_else(gone)?;
            let found = judge(formats::DIRECTORY, place, settings.format.into()).ok_or_else(gone)?;
            Ok((Some(settings), found))
        }
        Err(Error::NewerFormat { found, .. }) => {
            let found = judge(formats::DIRECTORY, place, found.into()).ok_or_else(gone)?;
            Ok((None, found))
        }
        Err(e) => Err(e),
    }
}

/// An OSD of this machine.
struct Osd {
    id: OsdId,
    path: PathBuf,
    /// Whether it has a data file, without which no store was ever made there; or why that cannot be told.
    made: Result<bool, String>,
}

/// Those that a start serves: directories of OSDs that were removed from the cluster may still lie there.
fn osds(dir: &DataDir, settings: &Settings) -> Vec<Osd> {
    let of = |id| {
        let path = dir.osd_path(id);
        let listed = files::list_dir(&path).map_err(|e| e.to_string());
        let made = listed.map(|names| names.iter().any(|n| n == "block"));
        Osd { id, path, made }
    };
    settings.osd_ids().into_iter().map(of).collect()
}

/// Stores that are not there, though the cluster knows their OSDs.
fn missing(state: &ClusterState, osds: &[Osd]) -> Vec<Found> {
    let map = &state.osdmap;
    // One that has never been up has no place in the tree yet: a start makes its store.
    let known = |id| map.osd(id).is_some_and(|o| !o.uuid.is_nil()) && map.crush.item_name(id).is_some();
    let gone = osds.iter().filter(|osd| osd.made == Ok(false) && known(osd.id));
    let why = "there is no store, but the cluster knows this OSD: put it back";
    gone.filter_map(|osd| refused(formats::STORE, osd.path.display().to_string(), why.into()))
        .collect()
}

/// The seal of an OSD, if it has one that was ever used.
fn seal(osd: &Path) -> Option<Found> {
    let path = osd.join(sealed::FILE);
    let head = |copy: usize| -> Option<u64> {
        let raw = files::read_range(&path, (copy * sealed::COPY) as u64, VERSION_AT + 4).ok()?;
        let number = raw.get(VERSION_AT..)?.try_into().ok().map(u32::from_le_bytes)?;
        raw.starts_with(sealed::MAGIC).then_some(number.into())
    };
    // One copy that can be read is enough.
    let version = (0..2).filter_map(head).min()?;
    judge(formats::SEAL, path.display().to_string(), version)
}

fn store(osd: &Osd, fsid: Uuid, keys: Option<&KeyFile>) -> Found {
    let place = osd.path.display().to_string();
    let options = store::Options {
        osd_id: osd.id,
        fsid,
        keys: keys.cloned(),
        ..store::Options::default()
    };
    let done = match store::look(&osd.path, &options) {
        Ok(identity) => judge(formats::STORE, place.clone(), identity.format.into())
            .map(|found| with_bits(found, identity.features, store::FEATURES_AT_OPEN)),
        Err(store::Error::NewerFormat { found, .. }) => judge(formats::STORE, place.clone(), found.into()),
        Err(e) => refused(formats::STORE, place.clone(), e.to_string()),
    };
    done.unwrap_or_else(|| unknown(formats::STORE, place))
}

/// A form that the table lacks, which its unit test does not let happen.
fn unknown(name: &'static str, place: String) -> Found {
    Found {
        name,
        place,
        version: None,
        writes: 0,
        reads_from: 0,
        converts: false,
        way_back: false,
        verdict: Verdict::Refused,
        text: "this program does not know the form".into(),
    }
}

fn has(bits: u64, bit: &Bit) -> bool {
    bits >> bit.place & 1 == 1
}

/// The same with what feature bits say: those that are set, and those that a start sets.
fn with_bits(found: Found, set: u64, at_start: u64) -> Found {
    if found.verdict != Verdict::Good {
        return found;
    }
    let of: Vec<Bit> = formats::bits()
        .into_iter()
        .filter(|b| b.of == found.name)
        .collect();
    let added: Vec<&Bit> = of.iter().filter(|b| has(at_start & !set, b)).collect();
    let lost: Vec<&str> = of
        .iter()
        .filter(|b| has(set | at_start, b) && !b.before)
        .map(|b| b.name)
        .collect();
    let names: Vec<&str> = added.iter().map(|b| b.name).collect();
    let converts = !added.is_empty();
    let way_back = found.way_back && lost.is_empty();
    let mut text = match converts {
        true => format!(
            "a start notes in it: {}. Programs that do not know that refuse it",
            names.join(", ")
        ),
        false => found.text,
    };
    if !lost.is_empty() {
        text = format!("{text}; the release before does not know: {}", lost.join(", "));
    }
    let one_way = converts && added.iter().any(|b| !b.before);
    Found {
        converts,
        way_back,
        verdict: if one_way { Verdict::OneWay } else { found.verdict },
        text,
        ..found
    }
}

/// The copy of the cluster's state beside an OSD, if there is one. None keeps a start from serving: it writes the next one over it, whatever it is.
fn copy(osd: &Path) -> Option<Found> {
    let form = formats::form(formats::COPY)?;
    let path = osd.join(copies::NAME);
    let head = files::read_range(&path, VERSION_AT as u64, 4);
    if head
        .as_ref()
        .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    {
        return None;
    }
    let number: Option<[u8; 4]> = head.ok().and_then(|raw| raw.try_into().ok());
    let text = match copies::Copy::read(osd) {
        Ok(_) => "is written anew with each change, in the same form".into(),
        Err(why) => format!("{why}; a start writes it anew"),
    };
    Some(Found {
        version: number.map(|raw| u32::from_le_bytes(raw).into()),
        way_back: form.before >= form.writes,
        verdict: Verdict::Good,
        text,
        ..blank(&form, path.display().to_string())
    })
}

/// Keys and values, and where they are from.
struct Rows {
    place: String,
    /// Of the file that they are from.
    file: Option<u64>,
    rows: Vec<(String, Bytes)>,
}

async fn state(dir: &DataDir, settings: &Settings, osds: &[Osd]) -> Result<Vec<Found>, Error> {
    let fsid = settings.fsid()?;
    let place = match &settings.etcd {
        Some(etcd) => format!("etcd at {} (prefix {})", etcd.endpoints.join(", "), etcd.prefix),
        None => dir.state_path().display().to_string(),
    };
    let read = match &settings.etcd {
        Some(etcd) => from_etcd(etcd, place.clone()).await,
        None => from_file(dir, osds, fsid),
    };
    Ok(match read {
        Ok(rows) => {
            let file = rows.file.and_then(|v| judge(formats::STATE_FILE, place, v));
            file.into_iter().chain(of_rows(&rows, fsid, osds)).collect()
        }
        Err(why) => Vec::from_iter(refused(formats::STATE, place, why)),
    })
}

async fn from_etcd(etcd: &EtcdSettings, place: String) -> Result<Rows, String> {
    let platform = Platform::system();
    let read = async {
        let store = etcd_store(etcd, &platform, &|_| {}).await?;
        store.range(Range::prefix("")).await.map_err(bad)
    };
    let late = |_| format!("{place} does not answer within {} s", ETCD_WITHIN.as_secs());
    let done = io::task::timeout(ETCD_WITHIN, read).await.map_err(late)?;
    let (rows, _) = done.map_err(|e| e.to_string())?;
    Ok(Rows {
        rows: plain(rows),
        file: None,
        place,
    })
}

fn plain(rows: Vec<Kv>) -> Vec<(String, Bytes)> {
    rows.into_iter().map(|kv| (kv.key, kv.value)).collect()
}

fn from_file(dir: &DataDir, osds: &[Osd], fsid: Uuid) -> Result<Rows, String> {
    let holder = || dir.holder().map_err(|e| e.to_string());
    let who = match holder()? {
        Holder::Nobody => None,
        Holder::Process(pid) => Some(format!("process {pid}")),
        Holder::Unknown => Some("a process that does not name itself".into()),
    };
    if let Some(who) = who {
        // It may be writing to the file: the copies are replaced as a whole.
        let paths = osds.iter().map(|osd| &osd.path);
        let copies = paths.filter_map(|osd| Some((osd, copies::Copy::read(osd).ok()?)));
        let ours = copies.filter(|(_, copy)| copy.fsid == fsid);
        let (osd, newest) = ours.max_by_key(|(_, copy)| copy.version).ok_or_else(|| {
            format!("{who} serves it and there is no whole copy beside an OSD yet: ask again in a minute, or stop it")
        })?;
        return Ok(Rows {
            place: osd.join(copies::NAME).display().to_string(),
            file: None,
            rows: newest.rows,
        });
    }
    let path = dir.state_path();
    let read = metastore::embedded::read_copy(&path).map_err(|e| e.to_string());
    // Whoever began to serve it meanwhile may have written to it.
    if holder()? != Holder::Nobody {
        return Err("a process has begun to serve it just now: ask again".into());
    }
    let (format, rows) = read?.ok_or_else(|| format!("{} is not there", path.display()))?;
    Ok(Rows {
        place: path.display().to_string(),
        file: Some(format),
        rows: plain(rows),
    })
}

/// The state that the rows say: read as a start reads it, each row of it.
fn of_rows(rows: &Rows, fsid: Uuid, osds: &[Osd]) -> Vec<Found> {
    let place = rows.place.clone();
    let format = rows.rows.iter().find(|(key, _)| key == cluster::keys::FORMAT);
    let format = format.map_or(Ok(Format::CURRENT), |(_, raw)| Format::from_bytes(raw));
    let format = match format {
        Ok(format) => format,
        Err(e) => return Vec::from_iter(refused(formats::STATE, place, e.to_string())),
    };
    let all = rows.rows.iter().map(|(key, value)| Row {
        key,
        value,
        revision: 0,
    });
    let all: Vec<Row> = all.collect();
    let refuse = |why: String| {
        let version = Some(format.version.into());
        let found = refused(formats::STATE, rows.place.clone(), why);
        Vec::from_iter(found.map(|f| Found { version, ..f }))
    };
    match cluster::load::load(&all) {
        Err(e) => refuse(e.to_string()),
        Ok(None) => refuse("there is no cluster in it".into()),
        Ok(Some(state)) if state.fsid != fsid => {
            refuse(format!("it belongs to cluster {}, not to {fsid}", state.fsid))
        }
        Ok(Some(state)) => {
            let found = judge(formats::STATE, place, format.version.into());
            let found = found.map(|f| with_bits(f, format.features, 0));
            let others = missing(&state, osds).into_iter().chain(elsewhere(&state));
            found.into_iter().chain(others).collect()
        }
    }
}

/// What lies in pools: who serves it refuses what is newer by itself.
fn elsewhere(state: &ClusterState) -> Vec<Found> {
    let not_seen = |name: &str, place: String, who: &str| {
        let form = formats::form(name)?;
        let way_back = form.before >= form.writes;
        let before = match way_back {
            true => String::new(),
            false => format!("; the release before reads up to version {}", form.before),
        };
        Some(Found {
            way_back,
            verdict: Verdict::NotSeen,
            text: format!("not looked at: {who} looks by itself, and refuses what is newer{before}"),
            ..blank(&form, place)
        })
    };
    let mut found = Vec::new();
    if !state.fsmap.filesystems.is_empty() {
        let place = format!("metadata pools of {} file systems", state.fsmap.filesystems.len());
        found.extend(not_seen(formats::FILES, place, "the metadata server"));
    }
    #[cfg(feature = "s3")]
    if state.osdmap.pool_by_name(s3::META_POOL).is_some() {
        let place = format!("pool {}", s3::META_POOL);
        found.extend(not_seen(formats::BUCKETS, place, "the gateway"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSID: Uuid = Uuid([7; 16]);

    #[test]
    fn each_form_refuses_a_newer_version_and_says_what_it_reads() {
        for form in formats::forms() {
            let found = judge(form.name, "there".into(), form.writes + 1).unwrap();
            assert_eq!(
                (found.verdict, found.way_back),
                (Verdict::Refused, false),
                "{found:?}"
            );
            assert!(found.text.contains("a newer Skep"), "{}", found.text);
            assert!(
                found.text.contains(&format!("up to {}", form.writes)),
                "{}",
                found.text
            );
            let same = judge(form.name, "there".into(), form.writes).unwrap();
            assert_eq!((same.verdict, same.converts), (Verdict::Good, false), "{same:?}");
            assert_eq!(same.way_back, form.before >= form.writes);
            let older = judge(form.name, "there".into(), form.reads_from - 1).unwrap();
            assert_eq!(older.verdict, Verdict::Refused, "{older:?}");
        }
    }

    #[test]
    fn bits_that_a_start_sets_are_a_change() {
        let found =
            |set, at_start| with_bits(judge(formats::STORE, "there".into(), 1).unwrap(), set, at_start);
        let nothing = found(0b11, 0b10);
        assert_eq!((nothing.converts, nothing.way_back), (false, true), "{nothing:?}");
        let older = found(0b01, 0b10);
        assert_eq!(
            (older.converts, older.verdict),
            (true, Verdict::Good),
            "{older:?}"
        );
        assert!(
            older.text.contains("beside their object's record"),
            "{}",
            older.text
        );
    }

    /// Rows as a first start leaves them, some of them changed.
    fn first_rows(changed: &[(&str, Option<Bytes>)]) -> Rows {
        let options = cluster::CreateOptions::new(
            FSID,
            "a",
            types::EntityAddr::msgr2("127.0.0.1:3300".parse().unwrap(), 0),
        );
        let entropy = |buf: &mut [u8]| buf.fill(3);
        let cx = auth::Context {
            now: types::Utime::default(),
            entropy: &entropy,
        };
        let mut rows = Vec::new();
        for write in cluster::create::first_rows(&options, &cx).unwrap() {
            if let cluster::rows::Write::Put { key, value } = write {
                rows.push((key, value));
            }
        }
        for (key, value) in changed {
            rows.retain(|(k, _)| k != key);
            rows.extend(value.clone().map(|v| (key.to_string(), v)));
        }
        Rows {
            place: "there".into(),
            file: None,
            rows,
        }
    }

    #[test]
    fn a_state_is_read_as_a_start_reads_it() {
        use denc::Encode;
        let good = of_rows(&first_rows(&[]), FSID, &[]);
        assert_eq!(good.len(), 1, "{good:?}");
        assert_eq!(
            (good[0].verdict, good[0].way_back),
            (Verdict::Good, true),
            "{good:?}"
        );
        let newer = Format {
            version: cluster::format::VERSION + 1,
            features: 0,
        };
        let newer = of_rows(
            &first_rows(&[(cluster::keys::FORMAT, Some(newer.to_bytes()))]),
            FSID,
            &[],
        );
        assert_eq!(newer[0].verdict, Verdict::Refused, "{newer:?}");
        assert_eq!(newer[0].version, Some(u64::from(cluster::format::VERSION) + 1));
        // Any row that cannot be read is found, and named.
        let unread = (cluster::keys::MONMAP, Some(Bytes::from_static(b"?")));
        let broken = of_rows(&first_rows(&[unread]), FSID, &[]);
        assert!(broken[0].text.contains(cluster::keys::MONMAP), "{broken:?}");
        let empty = of_rows(&first_rows(&[(cluster::keys::CLUSTER, None)]), FSID, &[]);
        assert_eq!(empty[0].verdict, Verdict::Refused, "{empty:?}");
        let other = of_rows(&first_rows(&[]), Uuid([8; 16]), &[]);
        assert!(other[0].text.contains("belongs to cluster"), "{other:?}");
    }

    const SETTINGS: &str = "format = 1\nfsid = \"07070707-0707-0707-0707-070707070707\"\nauth = \"none\"\nbind = \"127.0.0.1\"\n\
                            mon_port = 3300\nosds = 4\n";

    #[test]
    fn a_directory_is_looked_at_as_a_whole() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path();
        let write = |name: &str, raw: &[u8]| files::replace(&root.join(name), raw, 0o600).unwrap();
        write("skep.toml", SETTINGS.as_bytes());
        let options = store::Options {
            log_bytes: 1 << 20,
            fsid: FSID,
            ..store::Options::default()
        };
        store::Store::mkfs(&root.join("osd.0"), &options).unwrap();
        // Of another OSD; one that is no directory; and one that the settings do not name, so nobody's.
        store::Store::mkfs(&root.join("osd.2"), &options).unwrap();
        write("osd.3", b"?");
        files::make_dir(&root.join("osd.4")).unwrap();
        write("osd.4/block", b"?");
        // One that no program of today could have written.
        files::make_dir(&root.join("osd.1")).unwrap();
        let later = 2u32.to_le_bytes();
        write("osd.1/block", b"?");
        write("osd.1/seal", &[&sealed::MAGIC[..], &later].concat());
        write(
            "osd.1/cluster.copy",
            &[&b"SKEPCOPY"[..], &later, &[0; 4]].concat(),
        );
        let found = io::task::block_on(check(root, None)).unwrap().unwrap();
        let seen: Vec<(&str, Option<u64>, Verdict)> =
            found.iter().map(|f| (f.name, f.version, f.verdict)).collect();
        let want = [
            (formats::DIRECTORY, Some(1), Verdict::Good),
            (formats::STORE, Some(1), Verdict::Good),
            (formats::SEAL, Some(2), Verdict::Refused),
            (formats::STORE, None, Verdict::Refused),
            // A start writes it anew.
            (formats::COPY, Some(2), Verdict::Good),
            (formats::STORE, None, Verdict::Refused),
            (formats::STORE, None, Verdict::Refused),
            // There is no file of it.
            (formats::STATE, None, Verdict::Refused),
        ];
        assert_eq!(seen, want, "{found:?}");
        // Of a directory in a newer layout nothing else is believed.
        write(
            "skep.toml",
            SETTINGS.replace("format = 1", "format = 9").as_bytes(),
        );
        let found = io::task::block_on(check(root, None)).unwrap().unwrap();
        assert_eq!(
            (found.len(), found[0].version, found[0].verdict),
            (1, Some(9), Verdict::Refused)
        );
    }
}
