//! What the two headers say of each other. Nothing is read from an image, or changed, before both say that they belong together, and the source is where `prepare` has
//! put it: a server works with its own rights, and who can write to one pool could otherwise have it destroy or show an image of another by a record of his own.

use super::{Migration, Place, Record, check_kind, tell};
use crate::calls::Calls;
use crate::header::ask;
use crate::trash::{self, SOURCE_MIGRATION};
use crate::{Error, Result, directory};
use client::{Client, IoCtx, Operation};
use denc::Decode;
use types::Errno;

/// A header changes for other reasons, too (locks, watches): so often is a change of its record tried.
const TRIES_MAX: u32 = 16;

/// Only those that name the other side.
pub(super) struct Records {
    pub target: Option<Record>,
    pub source: Option<Record>,
    /// The headers are there, with or without a record.
    pub target_exists: bool,
    pub source_exists: bool,
}

impl Records {
    pub async fn read(client: &Client, migration: &Migration) -> Result<Self> {
        let (source, target) = (&migration.source, &migration.target);
        let of_target = record_of(&target.io(client), &target.header()).await?;
        check_kind(of_target.as_ref())?;
        let of_source = record_of(&source.io(client), &source.header()).await?;
        Ok(Self {
            target: of_target.filter(|r| r.header_type == Record::DESTINATION && source.is_meant_by(r)),
            source: of_source.filter(|r| r.header_type == Record::SOURCE && target.is_meant_by(r)),
            target_exists: directory::exists(&target.io(client), &target.header()).await?,
            source_exists: directory::exists(&source.io(client), &source.header()).await?,
        })
    }
}

impl Place {
    /// By its id, since names change; of format 1: by its name.
    fn is_meant_by(&self, record: &Record) -> bool {
        let meant = Self::of(record);
        let name_too = |p: &Self| p.is_old().then(|| p.name.clone());
        (self.pool, &self.namespace, &self.id, name_too(self))
            == (meant.pool, &meant.namespace, &meant.id, name_too(&meant))
    }
}

impl Migration {
    /// The target has a record and its source confirms it.
    pub(super) async fn confirm(&self, client: &Client, records: &Records) -> Result<(Record, Record)> {
        let (Some(target), Some(source)) = (&records.target, &records.source) else {
            let what = format!(
                "the source '{}' knows nothing of this migration",
                self.source.name
            );
            return Err(Error::refused(Errno::EINVAL, what));
        };
        if !self.source_in_trash(client).await? {
            let what = format!("the source '{}' is not in the trash", self.source.name);
            return Err(Error::refused(Errno::EINVAL, what));
        }
        Ok((target.clone(), source.clone()))
    }

    /// Put there by `prepare`; one of format 1 stays where it is.
    pub(super) async fn source_in_trash(&self, client: &Client) -> Result<bool> {
        let source = &self.source;
        if source.is_old() {
            return Ok(true);
        }
        match trash::get(&source.io(client), &source.id).await {
            Ok(entry) if entry.source == SOURCE_MIGRATION => Ok(true),
            Ok(_) => Err(Error::refused(
                Errno::EBUSY,
                format!("the source '{}' was put into the trash by somebody", source.name),
            )),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// If the record is in one of the states `from` still.
    pub(super) async fn change_source(&self, client: &Client, from: &[u8], to: u8, text: &str) -> Result<()> {
        let is = |r: &Record| r.header_type == Record::SOURCE && self.target.is_meant_by(r);
        let is = |r: &Record| is(r) && from.contains(&r.state);
        let (io, header) = (self.source.io(client), self.source.header());
        change(&io, &header, is, |op| set_state(op, to, text)).await
    }

    pub(super) async fn change_target(&self, client: &Client, from: &[u8], to: u8, text: &str) -> Result<()> {
        let is = |r: &Record| self.is_of_target(r) && from.contains(&r.state);
        let (io, header) = (self.target.io(client), self.target.header());
        change(&io, &header, is, |op| set_state(op, to, text)).await
    }

    /// The target is an image like others from here on.
    pub(super) async fn free_target(&self, client: &Client, from: u8) -> Result<()> {
        let is = |r: &Record| self.is_of_target(r) && r.state == from;
        let (io, header) = (self.target.io(client), self.target.header());
        change(&io, &header, is, |op| op.rbd_write("migration_remove", |_| {})).await?;
        tell(&io, &header).await;
        Ok(())
    }

    fn is_of_target(&self, r: &Record) -> bool {
        r.header_type == Record::DESTINATION && self.source.is_meant_by(r)
    }
}

/// None: there is no such header, or it says nothing of a migration.
pub(super) async fn record_of(io: &IoCtx, header: &str) -> Result<Option<Record>> {
    Ok(versioned(io, header).await?.map(|(record, _)| record))
}

/// With the version of the header.
async fn versioned(io: &IoCtx, header: &str) -> Result<Option<(Record, u64)>> {
    let op = Operation::new().rbd("migration_get", |_| {});
    match ask(io, header, op).await {
        Ok(done) => Ok(Some((Record::from_bytes(&done.step(0)?.data)?, done.version))),
        Err(e) if matches!(e.errno(), Errno::ENOENT | Errno::EINVAL) => Ok(None),
        Err(e) => Err(e),
    }
}

fn set_state(op: Operation, state: u8, text: &str) -> Operation {
    op.rbd_write("migration_set_state", |w| {
        w.u8(state);
        w.string(text);
    })
}

/// Only while the record `is` what we have decided by.
async fn change(
    io: &IoCtx,
    header: &str,
    is: impl Fn(&Record) -> bool,
    step: impl Fn(Operation) -> Operation,
) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let (_, version) = versioned(io, header)
            .await?
            .filter(|(r, _)| is(r))
            .ok_or_else(|| {
                let what = "somebody else ends the migration, or has changed its state";
                Error::refused(Errno::EBUSY, what)
            })?;
        match ask(io, header, step(Operation::new().assert_version(version))).await {
            Err(e) if is_another_version(&e) => {}
            done => return done.map(drop),
        }
    }
    Err(Error::refused(
        Errno::EBUSY,
        format!("'{header}' changes faster than its record can be"),
    ))
}

/// What an operation with `assert_version` fails with.
pub(super) fn is_another_version(e: &Error) -> bool {
    matches!(e.errno(), Errno::ERANGE | Errno::EOVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pool: i64, namespace: &str, name: &str, id: &str) -> Place {
        let (namespace, name, id) = (namespace.into(), name.into(), id.into());
        Place {
            pool,
            namespace,
            name,
            id,
        }
    }

    fn record(p: &Place) -> Record {
        Record {
            header_type: Record::SOURCE,
            pool: p.pool,
            pool_namespace: p.namespace.clone().into(),
            image_name: p.name.clone().into(),
            image_id: p.id.clone().into(),
            snap_seqs: Default::default(),
            overlap: 0,
            flatten: false,
            mirroring: false,
            state: 2,
            state_description: Default::default(),
            mirror_image_mode: 0,
            source_spec: Default::default(),
        }
    }

    #[test]
    fn a_record_means_an_image_by_pool_namespace_and_id() {
        let image = place(1, "n", "a", "17");
        for (other, same) in [
            (place(1, "n", "a", "17"), true),
            (place(1, "n", "renamed", "17"), true),
            (place(2, "n", "a", "17"), false),
            (place(1, "", "a", "17"), false),
            (place(1, "n", "a", "18"), false),
            (place(1, "n", "a", ""), false),
        ] {
            assert_eq!(image.is_meant_by(&record(&other)), same, "{other:?}");
        }
        // Of format 1.
        let old = place(1, "", "a", "");
        assert!(old.is_meant_by(&record(&old)));
        assert!(!old.is_meant_by(&record(&place(1, "", "b", ""))));
        assert!(!old.is_meant_by(&record(&place(1, "", "a", "17"))));
    }
}
