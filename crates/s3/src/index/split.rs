//! Splitting a shard: its upper half moves to a new one while writers go on.
//!
//! ```text
//! Open -> Copying    rows from `mid` on are copied to the target, which is Filling. Writers note the rows that they change
//!                    (`d ROW`), in the same operation; what is noted is copied again, until little is
//!      -> Frozen     writers from `mid` on wait; what is still noted is copied; the target turns Open
//!      -> Open       one operation removes the upper half and names the target as what follows
//! ```
//!
//! Whoever waits too long ends a split that was left: each step expects the states that the one before left behind, and a copier
//! that was overtaken finds its number gone from both shards. Each copier makes a target of its own: what one that was overtaken
//! still does with its target is no matter of the others; what writers noted is of all copiers, so who takes notes away expects his
//! own state of the shard. A copier that is at work says so from time to time. Until the last step the old shard answers for all of
//! its range.
//!
//! A split whose upper half has more rows than an OSD removes at once (E2BIG) is given up: Frozen -> Open. A target that is not
//! used is named by a row (`t TARGET`) in the same operation that gives it up, and removed by whoever collects ([`Index::sweep`]).

use super::{Index, Located, Size, root_mark, root_name, root_row};
use crate::rados::{Change, Look, PAGE, Pool};
use crate::record::{KEYED, Phase, Split, State, key_of, spare_row, state_row};
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeSet;

/// Rounds over what writers noted, and how little of it is copied while they wait.
const ROUNDS_MAX: usize = 16;
const FEW: usize = 16;
/// A copy that has not ended after so long (milliseconds) has been left.
const LEFT_AFTER: u64 = 60_000;
/// Rows that a split moves at most, about: an OSD removes 40,960 at once. Where a key has more of its own, what is above it moves.
const UPPER_MAX: u64 = if cfg!(test) { 100 } else { 32_000 };
/// Every so manieth key is remembered to find the middle.
const SAMPLE: u64 = 16;
pub(super) const OVERTAKEN: Error = Error::Busy("another splits this part of the index");

/// What became of a split.
pub(super) enum Ended {
    Split,
    GivenUp,
}

impl<P: Pool> Index<P> {
    /// Shards of which so much was added that they have to be looked at: each is told to one caller, who calls
    /// [`Self::tend`].
    pub fn grown(&self) -> Option<String> {
        let split_at = self.inner.split_at;
        let due = |s: &Size| match s.known {
            _ if s.busy => false,
            Some(n) => n + s.added >= split_at,
            None => s.added >= split_at / 8,
        };
        let mut sizes = self.sizes();
        let (shard, size) = sizes.iter_mut().find(|(_, s)| due(s))?;
        size.busy = true;
        Some(shard.clone())
    }

    /// Counts a shard, and splits it if it is too large. A split that was left is ended first.
    pub async fn tend(&self, shard: &str) -> Result<()> {
        let done = self.tend_busy(shard).await;
        let mut sizes = self.sizes();
        match &done {
            Ok(n) => {
                let size = sizes.entry(shard.to_string()).or_default();
                *size = Size {
                    known: Some(*n),
                    told: size.told,
                    ..Size::default()
                };
            }
            Err(_) => drop(sizes.remove(shard)),
        }
        match done {
            // Somebody else is at it, or the bucket is gone.
            Err(e) if e.is_conflict() || e.is_not_found() || e == OVERTAKEN => Ok(()),
            other => other.map(drop),
        }
    }

    async fn tend_busy(&self, shard: &str) -> Result<u64> {
        let bucket = shard.split('.').nth(1).unwrap_or_default().to_string();
        let seen = self.state(shard).await?;
        match &seen.state.phase {
            Phase::Open => {}
            Phase::Copying(_) if self.was_left(&seen.state) => {
                self.copy(&bucket, shard).await?;
                return Ok(0);
            }
            Phase::Frozen(_) => {
                self.finish(&bucket, shard).await?;
                return Ok(0);
            }
            _ => return Ok(0),
        }
        let (n, mid) = self.measure(shard).await?;
        if n < self.inner.split_at {
            return Ok(n);
        }
        // What cannot be split is looked at again when as much was added once more.
        let Some(mid) = mid else {
            self.tell_large(shard, n);
            return Ok(0);
        };
        let split = Split {
            target: String::new(),
            mid,
            copier: 0,
            since: self.inner.clock.now_ms(),
        };
        self.set_phase(shard, &seen.state, Phase::Copying(split)).await?;
        match self.copy(&bucket, shard).await? {
            Ended::Split => Ok(n / 2),
            Ended::GivenUp => Ok(0),
        }
    }

    /// Once, as far as this gateway remembers.
    fn tell_large(&self, shard: &str, n: u64) {
        let mut sizes = self.sizes();
        let told = &mut sizes.entry(shard.to_string()).or_default().told;
        if !std::mem::replace(told, true) {
            tracing::warn!(
                "s3: {shard} has {n} rows and cannot be split: most are versions of one key. Until fewer are left all \
                 keys beside it stay in this part of the index"
            );
        }
    }

    #[cfg(test)]
    pub(crate) fn was_told(&self, shard: &str) -> bool {
        self.sizes().get(shard).is_some_and(|s| s.told)
    }

    /// A split is being done that nobody is at any more.
    pub(crate) fn was_left(&self, state: &State) -> bool {
        let (Phase::Copying(split) | Phase::Frozen(split)) = &state.phase else {
            return false;
        };
        split.since + LEFT_AFTER < self.inner.clock.now_ms()
    }

    /// How many rows it has that would be moved, and the key in the middle of them, if there is one above the first key.
    async fn measure(&self, shard: &str) -> Result<(u64, Option<Bytes>)> {
        // Keys, with the rows that each stands for.
        let (mut n, mut samples) = (0u64, Vec::new());
        let mut first: Option<Bytes> = None;
        for class in KEYED {
            let prefix = Bytes::copy_from_slice(&[class]);
            let (mut after, mut of_class) = (prefix.clone(), 0u64);
            loop {
                let seen = self.pool().look(shard, Look::rows(&after, &prefix, PAGE)).await?;
                for (row, _) in &seen.rows {
                    if of_class % SAMPLE == 0 || of_class < SAMPLE {
                        let weight = if of_class < SAMPLE { 1 } else { SAMPLE };
                        samples.push((key_of(row), weight));
                    }
                    of_class += 1;
                }
                if let Some((row, _)) = seen.rows.first().filter(|_| after == prefix) {
                    let key = key_of(row);
                    first = Some(first.map_or(key.clone(), |f| f.min(key)));
                }
                match seen.rows.last() {
                    Some((last, _)) if seen.more => after = last.clone(),
                    _ => break,
                }
            }
            n += of_class;
        }
        samples.sort();
        let mut below = 0;
        let mut keys = samples.chunk_by(|a, b| a.0 == b.0);
        let middle = keys.find(|of_key| {
            let from = n.saturating_sub(below);
            below += of_key.iter().map(|(_, weight)| weight).sum::<u64>();
            below > n / 2 && from <= UPPER_MAX && of_key.first().map(|(key, _)| key) > first.as_ref()
        });
        let middle = middle
            .and_then(|of_key| of_key.first())
            .map(|(key, _)| key.clone());
        Ok((n, middle))
    }

    pub(crate) async fn state(&self, shard: &str) -> Result<Located> {
        let seen = self.pool().look(shard, Look::keys([&state_row()])).await?;
        Located::of(shard.to_string(), seen)
    }

    /// Its next state, with this phase, if it is still as it was seen.
    pub(super) async fn set_phase(&self, shard: &str, from: &State, phase: Phase) -> Result<State> {
        self.set_phase_with(Change::default(), shard, from, phase).await
    }

    async fn set_phase_with(&self, change: Change, shard: &str, from: &State, phase: Phase) -> Result<State> {
        let mut state = from.clone();
        state.version += 1;
        state.phase = phase;
        let change = change
            .expecting(&state_row(), Some(&from.to_bytes()))
            .setting(&state_row(), state.to_bytes());
        self.pool().change(shard, change).await?;
        Ok(state)
    }

    /// Copies the upper half, then ends the split. Takes the work over from whoever was at it.
    async fn copy(&self, bucket: &str, shard: &str) -> Result<Ended> {
        let seen = self.state(shard).await?;
        let Phase::Copying(mut split) = seen.state.phase.clone() else {
            return Err(OVERTAKEN);
        };
        let before = std::mem::replace(
            &mut split.target,
            format!("index.{bucket}.{}", self.inner.clock.tag()),
        );
        split.copier = self.inner.clock.random_u64();
        split.since = self.inner.clock.now_ms();
        let mut state = self
            .leave_target(shard, &seen.state, &before, Phase::Copying(split.clone()))
            .await?;
        let filling = self.make_target(&state, &split).await?;
        for class in KEYED {
            self.copy_class(shard, class, &split, &filling, &mut state)
                .await?;
        }
        for _ in 0..ROUNDS_MAX {
            let noted = self.copy_noted(shard, &split, &filling, Some(&mut state));
            if noted.await? < FEW {
                break;
            }
        }
        split.since = self.inner.clock.now_ms();
        self.set_phase(shard, &state, Phase::Frozen(split)).await?;
        self.finish(bucket, shard).await
    }

    /// As [`Self::set_phase`], and names a target that nobody will use any more; none if it is empty.
    async fn leave_target(&self, shard: &str, from: &State, target: &str, phase: Phase) -> Result<State> {
        let mut change = Change::default();
        if !target.is_empty() {
            let now = self.inner.clock.now_ms();
            change = change.setting(&spare_row(target), now.to_bytes());
        }
        self.set_phase_with(change, shard, from, phase).await
    }

    /// Makes the target; its state.
    async fn make_target(&self, of: &State, split: &Split) -> Result<Bytes> {
        let state = State {
            version: 1,
            end: of.end.clone(),
            next: of.next.clone(),
            phase: Phase::Filling { copier: split.copier },
            versions: of.versions,
        };
        let raw = state.to_bytes();
        let make = Change {
            create: true,
            ..Change::default()
        };
        self.pool()
            .change(&split.target, make.setting(&state_row(), raw.clone()))
            .await?;
        Ok(raw)
    }

    /// Removes targets that were given up, once nobody is at them any more. False: some are left.
    pub(crate) async fn sweep(&self, shard: &str) -> Result<bool> {
        let prefix = Bytes::from_static(b"t");
        let (mut after, mut all) = (prefix.clone(), true);
        loop {
            let seen = self.pool().look(shard, Look::rows(&after, &prefix, PAGE)).await?;
            for (row, since) in &seen.rows {
                if u64::from_bytes(since).unwrap_or(0) + LEFT_AFTER >= self.inner.clock.now_ms() {
                    all = false;
                    continue;
                }
                let target = String::from_utf8_lossy(&row[1..]).into_owned();
                self.pool().remove(&target).await?;
                let gone = Change::default().expecting(row, Some(since)).unsetting(row);
                match self.pool().change(shard, gone).await {
                    // Another was faster.
                    Err(e) if e.is_conflict() || e.is_not_found() => {}
                    other => other?,
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(all),
            }
        }
    }

    /// Says that its copier is still at it, when half of the time is over after which others think otherwise.
    async fn renew(&self, shard: &str, state: &mut State) -> Result<()> {
        let (mut phase, now) = (state.phase.clone(), self.inner.clock.now_ms());
        if let Phase::Copying(split) = &mut phase
            && split.since + LEFT_AFTER / 2 <= now
        {
            split.since = now;
            *state = self.set_phase(shard, state, phase).await?;
        }
        Ok(())
    }

    /// `state`: the shard's, as this copier left it.
    async fn copy_class(
        &self,
        shard: &str,
        class: u8,
        split: &Split,
        filling: &Bytes,
        state: &mut State,
    ) -> Result<()> {
        let prefix = Bytes::copy_from_slice(&[class]);
        let first: Bytes = [&prefix[..], &split.mid[..]].concat().into();
        let mut look = Look::rows(&first, &prefix, PAGE);
        look.keys.insert(first);
        loop {
            self.renew(shard, state).await?;
            let seen = self.pool().look(shard, look).await?;
            let mut change = Change::default().expecting(&state_row(), Some(filling));
            change.set.extend(seen.values);
            change.set.extend(seen.rows.iter().cloned());
            if !change.set.is_empty() {
                self.pool().change(&split.target, change).await?;
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => look = Look::rows(last, &prefix, PAGE),
                _ => return Ok(()),
            }
        }
    }

    /// Copies what writers noted; how much that was. `forget`: takes the notes away, but for those that were made again, if the
    /// shard's state is still this one: another copier has not copied what was noted since.
    async fn copy_noted(
        &self,
        shard: &str,
        split: &Split,
        filling: &Bytes,
        mut forget: Option<&mut State>,
    ) -> Result<usize> {
        let prefix = Bytes::from_static(b"d");
        let (mut after, mut n) = (prefix.clone(), 0);
        loop {
            let seen = self.pool().look(shard, Look::rows(&after, &prefix, PAGE)).await?;
            if seen.rows.is_empty() {
                return Ok(n);
            }
            n += seen.rows.len();
            // One that was given up may have left notes of keys that are not the target's now.
            let rows = seen.rows.iter().map(|(note, _)| note.slice(1..));
            let rows: BTreeSet<Bytes> = rows.filter(|row| split.moves(row)).collect();
            let look = Look {
                keys: rows.clone(),
                ..Look::default()
            };
            let now = self.pool().look(shard, look).await?.values;
            let mut change = Change::default().expecting(&state_row(), Some(filling));
            change.unset = rows.into_iter().filter(|r| !now.contains_key(r)).collect();
            change.set = now;
            self.pool().change(&split.target, change).await?;
            if let Some(state) = &mut forget {
                self.renew(shard, state).await?;
                let forgotten = Change {
                    expect: seen.rows.iter().cloned().collect(),
                    unset: seen.rows.iter().map(|(note, _)| note.clone()).collect(),
                    ..Change::default()
                };
                let forgotten = forgotten.expecting(&state_row(), Some(&state.to_bytes()));
                match self.pool().change(shard, forgotten).await {
                    Ok(()) => {}
                    // Some were made again: all are looked at again. Or it was overtaken, and finds that out when it goes on.
                    Err(e) if e.is_conflict() => {}
                    Err(e) => return Err(e),
                }
            }
            match seen.rows.last() {
                Some((last, _)) if seen.more => after = last.clone(),
                _ => return Ok(n),
            }
        }
    }

    /// Ends a split whose copy is complete but for what writers noted, whoever began it.
    pub(super) async fn finish(&self, bucket: &str, shard: &str) -> Result<Ended> {
        let seen = self.state(shard).await?;
        let Phase::Frozen(mut split) = seen.state.phase.clone() else {
            return Err(OVERTAKEN);
        };
        let copied_by = split.copier;
        split.copier = self.inner.clock.random_u64();
        let target = self.state(&split.target).await?;
        let state = match target.state.phase {
            Phase::Open => {
                self.set_phase(shard, &seen.state, Phase::Frozen(split.clone()))
                    .await?
            }
            Phase::Filling { copier } if copier == copied_by => {
                let state = self
                    .set_phase(shard, &seen.state, Phase::Frozen(split.clone()))
                    .await?;
                let copier = split.copier;
                let filling = self
                    .set_phase(&split.target, &target.state, Phase::Filling { copier })
                    .await?;
                self.copy_noted(shard, &split, &filling.to_bytes(), None).await?;
                self.set_phase(&split.target, &filling, Phase::Open).await?;
                state
            }
            // Somebody was cut off between the two: from the beginning.
            _ => {
                split.since = self.inner.clock.now_ms();
                self.set_phase(shard, &seen.state, Phase::Copying(split)).await?;
                return Box::pin(self.copy(bucket, shard)).await;
            }
        };
        self.cut(bucket, shard, &state, &split).await
    }

    async fn cut(&self, bucket: &str, shard: &str, frozen: &State, split: &Split) -> Result<Ended> {
        let state = State {
            version: frozen.version + 1,
            end: Some(split.mid.clone()),
            next: Some(split.target.clone()),
            phase: Phase::Open,
            versions: frozen.versions,
        };
        let upper = |class: u8| {
            let from: Bytes = [&[class], &split.mid[..]].concat().into();
            (from, Bytes::copy_from_slice(&[class + 1]))
        };
        let mut change = Change {
            unset_ranges: KEYED.map(upper).to_vec(),
            ..Change::default()
        };
        change
            .unset_ranges
            .push((Bytes::from_static(b"d"), Bytes::from_static(b"e")));
        let change = change
            .expecting(&state_row(), Some(&frozen.to_bytes()))
            .setting(&state_row(), state.to_bytes());
        match self.pool().change(shard, change).await {
            Err(e) if e.is_too_big() => {
                tracing::warn!(
                    "s3: {shard} has too many rows from one key on to be split there: it stays as it is"
                );
                let left = self.leave_target(shard, frozen, &split.target, Phase::Open);
                return left.await.map(|_| Ended::GivenUp);
            }
            other => other?,
        }
        self.remember(bucket, split.mid.clone(), split.target.clone());
        let known = Change::default()
            .expecting(&root_mark(), Some(&Bytes::from_static(b"1")))
            .setting(&root_row(&split.mid), split.target.clone().into());
        match self.pool().change(&root_name(bucket), known).await {
            // The bucket is gone, or others find their way by the shards.
            Err(e) if e.is_not_found() => Ok(Ended::Split),
            other => other.map(|()| Ended::Split),
        }
    }
}
