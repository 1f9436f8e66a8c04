//! Live migration: what the records in the headers of source and target say (docs/protocol/ceph/05-rbd.md, 4.8 and 10.3). Clients
//! prepare one; what comes then is in [`crate::image`].

use crate::calls::Calls;
use crate::header::{self, ask};
use crate::{Error, Result, directory, format1, names, trash};
use client::{IoCtx, Operation};
pub use objclass::rbd::types::Migration;
use types::Errno;

/// Of a record: how far the migration is.
pub const PREPARED: u8 = 2;
pub const EXECUTING: u8 = 3;
pub const EXECUTED: u8 = 4;
pub const ABORTING: u8 = 5;

/// One end of a migration, by what names its image.
#[derive(Debug, Clone)]
pub struct End {
    pub io: IoCtx,
    pub name: String,
    /// Empty for a source of format 1.
    pub id: String,
}

impl End {
    /// That which `record`, found at the other end `io`, names.
    pub fn other(io: &IoCtx, record: &Migration) -> Self {
        let mut there = io.client().pool_by_id(record.pool);
        there.set_namespace(record.pool_namespace.clone());
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Self {
            io: there,
            name: text(&record.image_name),
            id: text(&record.image_id),
        }
    }

    pub fn is_old(&self) -> bool {
        self.id.is_empty()
    }

    pub fn header(&self) -> String {
        match self.is_old() {
            true => format1::header_object(&self.name),
            false => names::header(&self.id),
        }
    }

    /// EINVAL: it is not being migrated.
    pub async fn record(&self) -> Result<Migration> {
        header::migration(&self.io, &self.header()).await
    }

    pub async fn set_state(&self, state: u8, description: &str) -> Result<()> {
        let op = Operation::new().rbd_write("migration_set_state", |w| {
            w.u8(state);
            w.string(description);
        });
        ask(&self.io, &self.header(), op).await.map(drop)
    }

    pub async fn remove_record(&self) -> Result<()> {
        let op = Operation::new().rbd_write("migration_remove", |_| {});
        ask(&self.io, &self.header(), op).await.map(drop)
    }
}

/// What a migration is from and to.
#[derive(Debug, Clone)]
pub struct Ends {
    pub source: End,
    pub target: End,
}

/// By the name of its target, or by that which its source had; and its state. EINVAL: there is none.
pub async fn find(io: &IoCtx, name: &str) -> Result<(Ends, u8)> {
    let here = |id: String| End {
        io: io.clone(),
        name: name.to_string(),
        id,
    };
    let end = match directory::id_of(io, name).await {
        Ok(id) => here(id),
        // A source: of format 1, or in the trash.
        Err(e) if e.errno() == Errno::EOPNOTSUPP => here(String::new()),
        Err(e) if e.is_not_found() => here(trashed(io, name).await?),
        Err(e) => return Err(e),
    };
    let record = end.record().await?;
    let other = End::other(io, &record);
    let (source, target) = match record.header_type {
        Migration::SOURCE => (end, other),
        _ => (other, end),
    };
    // What the target says counts.
    let state = target.record().await?.state;
    Ok((Ends { source, target }, state))
}

async fn trashed(io: &IoCtx, name: &str) -> Result<String> {
    let all = trash::list(io).await?;
    let mut sources = all
        .into_iter()
        .filter(|(_, e)| e.source == trash::SOURCE_MIGRATION);
    let found = sources.find(|(_, e)| e.name == name.as_bytes());
    found
        .map(|(id, _)| id)
        .ok_or_else(|| Error::refused(Errno::EINVAL, format!("there is no migration of '{name}'")))
}
