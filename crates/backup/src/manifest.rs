//! Backups as a repository lists them: each is a manifest, restic's snapshot, of a tree `/POOL[/NAMESPACE]/IMAGE.raw`, with what
//! else the image is in `IMAGE.json` beside it.
//!
//! What a list shows, and where the next backup goes on, stands in the manifest's tags; so a list reads no trees.

use crate::folder::Kind as FileKind;
use crate::forms::{Id, Kind, Manifest, Node, Tree, json};
use crate::lock::Lock;
use crate::repository::Repository;
use crate::{Error, Result, time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The first tag of ours.
const TAG: &str = "skep";
const RAW: &str = ".raw";
const JSON: &str = ".json";

/// One backup of one image.
#[derive(Debug, Clone)]
pub struct Backup {
    pub id: Id,
    /// When its snapshot was taken, since 1970.
    pub at: Duration,
    /// `POOL[/NAMESPACE]/IMAGE`.
    pub image: String,
    pub tree: Id,
    tags: BTreeMap<String, String>,
}

/// What an image is besides its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub form: u32,
    pub cluster: String,
    pub pool: String,
    pub namespace: String,
    pub image: String,
    pub id: String,
    pub size: u64,
    pub features: u64,
    pub order: u8,
    pub stripe_unit: u64,
    pub stripe_count: u64,
    pub data_pool: Option<String>,
    pub metadata: BTreeMap<String, String>,
    /// For people: what it is a clone of; its backup is whole.
    pub parent: Option<String>,
    pub snapshot: String,
    pub snapshot_id: u64,
    /// There were snapshots older than that one, to which the image may be rolled back later.
    #[serde(default = "always")]
    pub older_snapshots: bool,
    /// Bytes of a piece.
    pub piece: u64,
}

fn always() -> bool {
    true
}

pub const FORM: u32 = 1;

impl Backup {
    pub(crate) fn of(id: Id, manifest: &Manifest) -> Option<Self> {
        if manifest.tags.first().map(String::as_str) != Some(TAG) {
            return None;
        }
        let pair = |t: &String| t.split_once('=').map(|(k, v)| (k.to_string(), v.to_string()));
        let image = manifest.paths.first()?.strip_prefix('/')?.strip_suffix(RAW)?;
        Some(Self {
            id,
            at: time::parse_exact(&manifest.time)?,
            image: image.to_string(),
            tree: manifest.tree,
            tags: manifest.tags.iter().filter_map(pair).collect(),
        })
    }

    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.tag(name)?.parse().ok()
    }

    pub fn size(&self) -> u64 {
        self.number("size").unwrap_or(0)
    }

    /// In seconds since 1970.
    pub fn time(&self) -> u64 {
        self.at.as_secs()
    }

    pub fn name(&self) -> String {
        format!("{}@{}", self.image, time::seconds(self.time()))
    }

    fn path(&self) -> Vec<&str> {
        self.image.split('/').collect()
    }
}

/// What the files of an image in a backup have.
#[derive(Debug)]
pub struct Contents {
    pub about: About,
    pub pieces: Vec<Id>,
}

impl Repository {
    /// Of images, oldest first. What others keep in the same repository is left out.
    pub fn backups(&self) -> Result<Vec<Backup>> {
        let all = self.manifests()?;
        let mut ours: Vec<Backup> = all.iter().filter_map(|(id, m)| Backup::of(*id, m)).collect();
        ours.sort_by_key(|b| (b.at, b.id));
        Ok(ours)
    }

    pub(crate) fn manifests(&self) -> Result<Vec<(Id, Manifest)>> {
        let read = |id: Id| Ok((id, self.read_json(FileKind::Snapshot, &id)?));
        self.folder
            .list(FileKind::Snapshot)?
            .into_iter()
            .map(read)
            .collect()
    }

    /// Stores what describes a backup whose data are stored, makes it all durable, and names it last.
    pub(crate) fn finish(
        &self,
        lock: &Lock,
        at: Duration,
        contents: Contents,
        policy: Option<&str>,
        new: u64,
    ) -> Result<Backup> {
        let (about, when) = (&contents.about, time::stamp(at));
        let text = json(about)?;
        let (text_id, _) = self.save(Kind::Data, &text)?;
        let mut wanted: HashSet<Id> = contents.pieces.iter().copied().collect();
        wanted.insert(text_id);
        let nodes = vec![
            // By name, as restic wants them.
            Node::file(
                &format!("{}{JSON}", about.image),
                &when,
                text.len() as u64,
                vec![text_id],
            ),
            Node::file(
                &format!("{}{RAW}", about.image),
                &when,
                about.size,
                contents.pieces,
            ),
        ];
        let mut tree = self.save_tree(nodes)?;
        wanted.insert(tree);
        let mut path = vec![about.pool.as_str()];
        path.extend(Some(about.namespace.as_str()).filter(|n| !n.is_empty()));
        for name in path.iter().rev() {
            tree = self.save_tree(vec![Node::folder(name, &when, tree)])?;
            wanted.insert(tree);
        }
        self.flush()?;
        self.refuse_unnamed(&wanted)?;
        lock.check()?;
        let mut tags = vec![
            TAG.to_string(),
            format!("cluster={}", about.cluster),
            format!("image-id={}", about.id),
            format!("new={new}"),
            format!("size={}", about.size),
            format!("snapshot-id={}", about.snapshot_id),
        ];
        tags.extend(policy.map(|p| format!("policy={p}")));
        let manifest = Manifest {
            time: when,
            parent: None,
            tree,
            paths: vec![format!("/{}/{}{RAW}", path.join("/"), about.image)],
            hostname: io::files::hostname(),
            username: "skep".into(),
            tags,
        };
        let id = self.write_json(FileKind::Snapshot, &manifest)?;
        Backup::of(id, &manifest).ok_or_else(|| Error::damaged("a manifest that cannot be read back"))
    }

    fn save_tree(&self, nodes: Vec<Node>) -> Result<Id> {
        let mut text = json(&Tree { nodes })?;
        // restic ends it so.
        text.push(b'\n');
        Ok(self.save(Kind::Tree, &text)?.0)
    }

    /// Reads the tree, which is large for a large image.
    pub fn contents(&self, backup: &Backup) -> Result<Contents> {
        let path = backup.path();
        let (image, folders) = path
            .split_last()
            .ok_or_else(|| Error::damaged("a backup of nothing"))?;
        let mut tree: Tree = self.load_json(&backup.tree)?;
        for _ in folders {
            let below = tree.nodes.first().and_then(|n| n.subtree);
            let below = below.ok_or_else(|| missing(backup, "its folder"))?;
            tree = self.load_json(&below)?;
        }
        let mut file = |suffix: &str| {
            let at = tree
                .nodes
                .iter()
                .position(|n| n.kind == "file" && n.name.ends_with(suffix));
            let node = at.map(|i| tree.nodes.swap_remove(i));
            node.ok_or_else(|| missing(backup, &format!("{image}{suffix}")))
        };
        let (text, raw) = (file(JSON)?, file(RAW)?);
        let mut bytes = Vec::new();
        for id in text.content.unwrap_or_default() {
            bytes.extend(self.load(&id)?);
        }
        let about: About =
            serde_json::from_slice(&bytes).map_err(|e| Error::damaged(format!("{}: {e}", backup.name())))?;
        let pieces = raw.content.unwrap_or_default();
        if about.form != FORM {
            let what = format!("{} was made by a newer skep (form {})", backup.name(), about.form);
            return Err(Error::refused(what));
        }
        if about.piece == 0
            || raw.size != about.size
            || pieces.len() as u64 != about.size.div_ceil(about.piece)
        {
            return Err(missing(backup, "pieces of its data"));
        }
        Ok(Contents { about, pieces })
    }
}

fn missing(backup: &Backup, what: &str) -> Error {
    Error::damaged(format!("{}: {what} is missing", backup.name()))
}

/// The backup that `IMAGE@TIME` names: `latest`, the beginning of a time (`2026-11-26T11`) or of an id. IMAGE is
/// `POOL[/NAMESPACE]/IMAGE`, or its last part where that is enough.
pub fn find<'a>(backups: &'a [Backup], spec: &str) -> Result<&'a Backup> {
    let (image, at) = spec
        .rsplit_once('@')
        .ok_or_else(|| Error::refused(format!("'{spec}' is no IMAGE@TIME; IMAGE@latest is the newest")))?;
    let exact = |b: &&Backup| b.image == image;
    let last = |b: &&Backup| b.image.rsplit('/').next() == Some(image);
    let mut of_image: Vec<&Backup> = backups.iter().filter(exact).collect();
    if of_image.is_empty() {
        of_image = backups.iter().filter(last).collect();
        let names: std::collections::BTreeSet<&str> = of_image.iter().map(|b| b.image.as_str()).collect();
        if names.len() > 1 {
            let names = Vec::from_iter(names).join(", ");
            return Err(Error::refused(format!("'{image}' may be any of {names}")));
        }
    }
    if of_image.is_empty() {
        return Err(Error::refused(format!("there is no backup of '{image}'")));
    }
    if at == "latest" {
        refuse_several_clusters(image, &of_image)?;
        return of_image
            .last()
            .copied()
            .ok_or_else(|| Error::refused("there is no backup"));
    }
    let when = at.trim_end_matches('Z');
    let fits = |b: &&&Backup| {
        let by_id = at.len() >= 4 && b.id.to_string().starts_with(at);
        by_id || !when.is_empty() && time::stamp(b.at).starts_with(when)
    };
    let found: Vec<&Backup> = of_image.iter().filter(fits).copied().collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(Error::refused(format!(
            "no backup of '{image}' is from {at}; `skep backup ls` shows them"
        ))),
        _ => {
            let times: Vec<String> = found
                .iter()
                .map(|b| format!("{} ({})", time::stamp(b.at), b.id.short()))
                .collect();
            Err(Error::refused(format!(
                "several fit '{at}': {}",
                times.join(", ")
            )))
        }
    }
}

/// Clusters may have images of the same name in one repository.
fn refuse_several_clusters(image: &str, backups: &[&Backup]) -> Result<()> {
    let newest: BTreeMap<&str, &Backup> = backups
        .iter()
        .map(|b| (b.tag("cluster").unwrap_or("-"), *b))
        .collect();
    if newest.len() < 2 {
        return Ok(());
    }
    let ids = newest
        .iter()
        .map(|(cluster, b)| format!("@{} of cluster {cluster}", b.id.short()));
    Err(Error::refused(format!(
        "several clusters have '{image}': say {}",
        Vec::from_iter(ids).join(", or ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(image: &str, time: u64) -> Backup {
        Backup {
            id: Id::of(format!("{image}{time}").as_bytes()),
            at: Duration::from_secs(time),
            image: image.into(),
            tree: Id::of(b""),
            tags: BTreeMap::new(),
        }
    }

    #[test]
    fn backups_are_named_by_people() {
        let day = 1_795_692_245;
        let all = [
            backup("rbd/a", day),
            backup("rbd/a", day + 60),
            backup("rbd/b", day),
            backup("other/b", day),
        ];
        let mut two = [all[0].clone(), all[1].clone()];
        two[1].tags.insert("cluster".into(), "c2".into());
        let said = find(&two, "a@latest").unwrap_err().to_string();
        let id = two[1].id.short();
        assert!(said.contains(&format!("@{id} of cluster c2")), "{said}");
        assert_eq!(find(&two, &format!("a@{id}")).unwrap().id, two[1].id);
        let found = |spec: &str| find(&all, spec).map(|b| (b.image.clone(), b.time()));
        assert_eq!(found("a@latest").unwrap(), ("rbd/a".into(), day + 60));
        assert_eq!(found("rbd/a@2026-11-26T11:24").unwrap(), ("rbd/a".into(), day));
        assert_eq!(found("rbd/b@latest").unwrap(), ("rbd/b".into(), day));
        let by_id = format!("a@{}", all[0].id.short());
        assert_eq!(found(&by_id).unwrap(), ("rbd/a".into(), day));
        for (spec, why) in [
            ("b@latest", "any of other/b, rbd/b"),
            ("a@2026-11", "several fit"),
            ("a@2025", "no backup of 'a' is from 2025"),
            ("c@latest", "no backup of 'c'"),
            ("a", "no IMAGE@TIME"),
        ] {
            let said = found(spec).unwrap_err().to_string();
            assert!(said.contains(why), "{spec}: {said}");
        }
    }
}
