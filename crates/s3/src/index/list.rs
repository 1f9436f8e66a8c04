//! Reading an index in order.

use super::Index;
use crate::rados::{Look, PAGE, Pool};
use crate::{Error, Result};
use bytes::{Buf, Bytes};

/// Where a listing is: an escaped key, or the rest of a row after its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub at: Bytes,
    /// What is at `at` itself comes next; else what is after it.
    pub including: bool,
}

impl Position {
    pub fn start() -> Self {
        Self {
            at: Bytes::new(),
            including: true,
        }
    }

    pub fn after(at: Bytes) -> Self {
        Self { at, including: false }
    }

    pub fn from(at: Bytes) -> Self {
        Self { at, including: true }
    }
}

/// Rows in order, without their class, and where to go on; None: there are no more.
#[derive(Debug, Default)]
pub struct Rows {
    pub rows: Vec<(Bytes, Bytes)>,
    pub next: Option<Position>,
}

impl<P: Pool> Index<P> {
    /// Some rows of one class from `from` on whose rest begins with `prefix`, at most `max`; perhaps none although there are more.
    pub async fn rows(
        &self,
        bucket: &str,
        class: u8,
        prefix: &Bytes,
        from: &Position,
        max: u64,
    ) -> Result<Rows> {
        let row = |rest: &[u8]| -> Bytes { [&[class], rest].concat().into() };
        let mut from = from.clone();
        if from.at < *prefix {
            from = Position::from(prefix.clone());
        }
        let first = row(&from.at);
        // One more than a page: whether there are others is seen in the same look.
        let mut look = Look::rows(&first, &row(prefix), max.min(PAGE + 1));
        if from.including {
            look.keys.insert(first.clone());
        }
        let seen = self.look(bucket, &from.at, &look).await?;
        let mut rows = seen.rows;
        rows.iter_mut().for_each(|(row, _)| row.advance(row.len().min(1)));
        if let Some(value) = seen.values.get(&first).filter(|_| from.at.starts_with(prefix)) {
            rows.insert(0, (from.at.clone(), value.clone()));
        }
        let next = match (seen.more, rows.last(), seen.state.end) {
            (true, Some((last, _)), _) => Some(Position::after(last.clone())),
            (true, None, _) => return Err(Error::Damaged("an omap that does not go on".into())),
            // Beyond the prefix there is nothing to look for.
            (false, _, Some(end)) if end > *prefix && !end.starts_with(prefix) => None,
            (false, _, Some(end)) => Some(Position::from(end)),
            (false, _, None) => None,
        };
        Ok(Rows { rows, next })
    }
}
