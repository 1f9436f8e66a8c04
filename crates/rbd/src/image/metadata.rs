//! An image's metadata: keys and values that users and tools keep with it.

use super::{Image, Inner, detached};
use crate::Result;
use crate::calls::Calls;
use crate::header::ask;
use bytes::Bytes;
use client::Operation;
use denc::Reader;
use std::collections::BTreeMap;

const PAGE: u64 = 256;

impl Image {
    pub async fn metadata(&self) -> Result<BTreeMap<Bytes, Bytes>> {
        self.inner.metadata().await
    }

    /// Sets these keys; others stay.
    pub async fn set_metadata(&self, values: BTreeMap<Bytes, Bytes>) -> Result<()> {
        let inner = self.inner.clone();
        detached(async move {
            let _alone = inner.alone().await?;
            let op = Operation::new().rbd_write("metadata_set", |w| w.put(&values));
            ask(&inner.io, &inner.header_oid, op).await?;
            inner.changed().await
        })
        .await
    }
}

impl Inner {
    pub(super) async fn metadata(&self) -> Result<BTreeMap<Bytes, Bytes>> {
        let (mut all, mut after) = (BTreeMap::new(), Bytes::new());
        loop {
            let op = Operation::new().rbd("metadata_list", |w| {
                w.blob(&after);
                w.u64(PAGE);
            });
            let page: BTreeMap<Bytes, Bytes> = Reader::new(self.asked(op).await?).get()?;
            match page.keys().next_back() {
                Some(last) => after = last.clone(),
                None => return Ok(all),
            }
            all.extend(page);
        }
    }
}
