//! Transactions whose data is compressed, and what the superblock says of it.

use super::Store;
use crate::compress::Compression;
use crate::superblock::FEATURE_BLOBS;
use crate::{Error, Result, Seq};
use std::sync::Arc;
use types::Transaction;

impl Store {
    /// Like [`Store::queue`], with data compressed where that saves enough. What is compressed stays so until it is written over.
    pub fn queue_compressed(
        &mut self,
        transaction: impl std::borrow::Borrow<Transaction>,
        compression: Option<Compression>,
    ) -> Result<Seq> {
        self.state.compression = compression;
        let out = self.queue_now(transaction.borrow());
        self.state.compression = None;
        out
    }

    /// Before the record of the first transaction that makes a blob is written: from now on programs that know of none refuse
    /// the store. Waits for two flushes, once in a store's life.
    pub(super) fn may_have_blobs(&mut self) -> Result<()> {
        if !self.state.tx.has_blobs() || self.superblock.identity.features & FEATURE_BLOBS != 0 {
            return Ok(());
        }
        let Err(e) = self.superblock.add_features(&*self.file, FEATURE_BLOBS) else {
            return Ok(());
        };
        self.state.rollback();
        let e = Error::io(&self.path, "write the superblock", e);
        self.committer.fail(e.clone());
        Err(Error::Stopped(Arc::new(e)))
    }
}
