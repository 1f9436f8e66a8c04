//! Which migration somebody means who names an image: its target, or its source, also after a commit or an abort that was cut short.

use super::{ABORTING, Migration, Place, Record, Records, check_kind, record_of};
use crate::trash::SOURCE_MIGRATION;
use crate::{Error, Result, directory, names, trash};
use client::IoCtx;
use types::Errno;

/// A migration, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub migration: Migration,
    /// That of the target's record; once that is gone, of the source's.
    pub state: u8,
    /// The target has a record still.
    pub has_target: bool,
}

/// None: no image of this name takes part in one.
pub async fn find(io: &IoCtx, name: &str) -> Result<Option<Standing>> {
    let known = named(io, name).await?;
    if let Some(place) = &known
        && let Some(record) = record_of(io, &place.header()).await?
    {
        return standing(io, place.clone(), &record).await.map(Some);
    }
    search(io, name, known.as_ref()).await
}

fn place_in(io: &IoCtx, name: &str, id: String) -> Place {
    Place {
        pool: io.pool_id(),
        namespace: String::from_utf8_lossy(io.namespace()).into_owned(),
        name: name.into(),
        id,
    }
}

/// By its name; or by the name that it had before it was prepared.
async fn named(io: &IoCtx, name: &str) -> Result<Option<Place>> {
    match directory::id_of(io, name).await {
        Ok(id) => return Ok(Some(place_in(io, name, id))),
        // Of format 1.
        Err(e) if e.errno() == Errno::EOPNOTSUPP => return Ok(Some(place_in(io, name, String::new()))),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    let entries = trash::list(io).await?.into_iter();
    let fitting = entries.filter(|(_, e)| e.source == SOURCE_MIGRATION && e.name == name);
    let id = only(name, fitting.map(|(id, _)| id).collect())?;
    Ok(id.map(|id| place_in(io, name, id)))
}

/// Several images that are moved may have had the same name.
fn only(name: &str, mut ids: Vec<String>) -> Result<Option<String>> {
    match ids.len() {
        0 | 1 => Ok(ids.pop()),
        _ => Err(Error::refused(
            Errno::EINVAL,
            format!(
                "several images that are being migrated were named '{name}' (ids {}): name the target",
                ids.join(", ")
            ),
        )),
    }
}

async fn standing(io: &IoCtx, place: Place, record: &Record) -> Result<Standing> {
    check_kind(Some(record))?;
    let other = Place::of(record);
    let migration = match record.header_type {
        Record::SOURCE => Migration {
            source: place,
            target: other,
        },
        _ => Migration {
            source: other,
            target: place,
        },
    };
    let of_target = Records::read(io.client(), &migration).await?.target;
    Ok(Standing {
        state: of_target.as_ref().map_or(record.state, |r| r.state),
        has_target: of_target.is_some(),
        migration,
    })
}

/// The target's record is gone, or the target: a source in some pool's trash names it. One of format 1 is found by its name alone.
async fn search(io: &IoCtx, name: &str, known: Option<&Place>) -> Result<Option<Standing>> {
    let client = io.client();
    let pools: Vec<i64> = client.map()?.pools.keys().copied().collect();
    for pool in pools {
        let mut at = client.pool_by_id(pool);
        let mut namespaces = vec![String::new()];
        namespaces.extend(directory::namespaces(&at).await?);
        for namespace in namespaces {
            at.set_namespace(namespace.into_bytes());
            for (id, entry) in trash::list(&at).await? {
                if entry.source != SOURCE_MIGRATION {
                    continue;
                }
                let Some(record) = record_of(&at, &names::header(&id)).await? else {
                    continue;
                };
                let target = Place::of(&record);
                let same = match known {
                    Some(k) => k.id == target.id,
                    None => target.name == name && record.state == ABORTING,
                };
                let here = target.pool == io.pool_id() && target.namespace.as_bytes() == &io.namespace()[..];
                if record.header_type == Record::SOURCE && here && same {
                    let old_name = String::from_utf8_lossy(&entry.name).into_owned();
                    let source = place_in(&at, &old_name, id);
                    return standing(&at, source, &record).await.map(Some);
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_several_had_means_none_of_them() {
        let ids = |ids: &[&str]| ids.iter().map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(only("vm", ids(&[])).unwrap(), None);
        assert_eq!(only("vm", ids(&["1a"])).unwrap(), Some("1a".into()));
        let e = only("vm", ids(&["1a", "2b"])).unwrap_err();
        assert!(
            e.errno() == Errno::EINVAL && e.to_string().contains("1a, 2b"),
            "{e}"
        );
    }
}
