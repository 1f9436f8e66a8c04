//! The index: ordered tables of byte strings as of the last checkpoint, behind a small trait.
//!
//! Contract of an implementation: [`Index::commit`] applies all changes of its closure or none, and they
//! are durable when it returns; a [`Snapshot`] shows one committed state and never changes. There is one
//! writer at a time. Nothing is written between commits: the log covers everything newer. Keys and values
//! are any bytes, none too; rows come in the keys' byte order; a range that ends before it begins has no
//! rows. `tests` holds implementations to this.
//!
//! Not here: what the rows mean (that is `checkpoint`, `state`).

mod checked;
mod layer;
mod redb;
mod slack;

pub use self::checked::Checked;
pub use self::redb::RedbIndex;
pub use self::slack::Slack;

use crate::Result;
use bytes::Bytes;
use std::fmt::Debug;
use std::ops::Bound;

macro_rules! tables {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Table { $($(#[$doc])* $variant,)* }
        impl Table {
            pub const ALL: &[Table] = &[$(Table::$variant),*];
            pub fn name(self) -> &'static str {
                match self { $(Table::$variant => $name,)* }
            }
        }
    };
}

tables! {
    /// Object key: its record.
    Objects = "objects",
    /// Object number and omap key: value.
    Omap = "omap",
    /// Region (64 blocks): checksums and reference counts.
    Blocks = "blocks",
    /// Group (8192 blocks): which are taken.
    Taken = "taken",
    /// Collection: number, versions, metadata.
    Collections = "collections",
    /// Collection number and first version: a run of log entries.
    Logs = "logs",
    /// The checkpoint itself.
    Meta = "meta",
}

pub type Row = (Bytes, Bytes);
pub type Keys<'a> = Box<dyn Iterator<Item = Result<Bytes>> + 'a>;
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row>> + 'a>;

/// Takes a row; false: it has enough.
pub type Each<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

pub trait Index: Debug + Send + Sync {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;
    fn commit(&self, work: &mut dyn FnMut(&mut dyn Change) -> Result<()>) -> Result<()>;
    /// Size on the disk.
    fn bytes(&self) -> u64;
}

pub trait Snapshot: Debug + Send {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>>;
    fn range<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Rows<'a>>;
    /// The same rows, handed on where they lie, until `each` says that it has enough.
    fn each(&self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>, each: &mut Each<'_>) -> Result<()> {
        for row in self.range(table, from, to)? {
            let (key, value) = row?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }
    /// The keys of such a range alone.
    fn keys<'a>(&'a self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Keys<'a>> {
        Ok(Box::new(
            self.range(table, from, to)?.map(|row| row.map(|(k, _)| k)),
        ))
    }
}

/// What a commit may do; reads see the changes made before them.
pub trait Change {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// Deletes `[from, to)`.
    fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<()>;
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Bytes>>;
    fn first(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>>;
    fn last(&mut self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<Row>>;
}

#[cfg(test)]
mod tests;
