//! The list of all kinds of roles, and what `--roles` chooses of it.

use crate::datadir::{MDS, MON, OSD};
use crate::role::{Plan, Role};
use crate::{Error, mds, monitor, osds};

type Make = fn(&Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error>;

/// Roles of one sort.
pub(crate) struct Kind {
    /// As `--roles` names it.
    pub name: &'static str,
    pub make: Make,
    /// All of them, in a sentence.
    pub all: &'static str,
    /// What it means that they have stopped while the node did not.
    pub stopped: &'static str,
    /// It needs the others of this node to the end: they are told to stop when it has.
    pub leaves_first: bool,
}

/// In the order of their start. The monitor comes last: clients that waited for a restart get one map in which all OSDs are
/// up, not the first of many, after which they would ask again only some seconds later.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: OSD,
        make: osds::roles,
        all: "the OSDs of this machine",
        stopped: "the OSDs of this machine were removed from the cluster",
        leaves_first: false,
    },
    Kind {
        name: MON,
        make: monitor::roles,
        all: "the monitor",
        stopped: "the monitor has stopped",
        leaves_first: false,
    },
    // It asks the monitor as any client does.
    Kind {
        name: MDS,
        make: mds::roles,
        all: "the metadata server",
        stopped: "the metadata server has stopped",
        leaves_first: true,
    },
    // Where it was asked for.
    #[cfg(feature = "s3")]
    Kind {
        name: crate::datadir::S3,
        make: crate::s3::roles,
        all: "the object gateway",
        stopped: "the object gateway has stopped",
        leaves_first: true,
    },
    #[cfg(feature = "console")]
    Kind {
        name: crate::datadir::CONSOLE,
        make: crate::console::roles,
        all: "the console",
        stopped: "the console has stopped",
        leaves_first: true,
    },
];

/// Names of all roles of this build, in the order of their start.
pub fn role_names() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.name).collect()
}

/// What `--roles` named, each once, in the order of their start.
pub(crate) fn chosen(names: Option<&[String]>) -> Result<Option<Vec<String>>, Error> {
    let Some(names) = names else { return Ok(None) };
    let known = role_names();
    if let Some(other) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(Error::Usage(format!(
            "--roles: {other:?} is none of this program's roles, which are {}",
            known.join(", ")
        )));
    }
    if names.is_empty() {
        return Err(Error::Usage(format!(
            "no role is named: this program has {}",
            known.join(", ")
        )));
    }
    let named = |name: &&str| names.iter().any(|n| n == name);
    Ok(Some(known.into_iter().filter(named).map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_chosen_by_name() {
        let check = |said: &[&str], want: Option<&[&str]>| {
            let said: Vec<String> = said.iter().map(|s| s.to_string()).collect();
            let found = chosen(Some(&said)).ok().flatten();
            let found: Option<Vec<&str>> = found.as_ref().map(|f| f.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), want, "{said:?}");
        };
        check(&["mon", "osd", "mon"], Some(&["osd", "mon"]));
        check(&["mon"], Some(&["mon"]));
        check(&["mds"], Some(&["mds"]));
        check(&["swift"], None);
        check(&["osd", ""], None);
        check(&[], None);
    }
}
