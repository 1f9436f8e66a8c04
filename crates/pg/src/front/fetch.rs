//! Objects of other OSDs that a message needs (COPY_FROM): asked for when the message has its turn, so that a
//! message that waits longer does not take an older source along.

use crate::Pg;
use crate::api::{ClientOp, ClusterView, Context, Located, Output};
use crate::exec::ops::copy::{copies, source_of};
use crate::exec::request::CopySource;
use crate::front::parked::{Copies, JobId};
use std::collections::HashMap;
use types::Errno;

/// Whether a message may need objects of other OSDs.
pub(crate) fn copies_objects(c: &ClientOp) -> bool {
    c.op.ops.iter().any(copies)
}

/// Where the sources of a message's COPY_FROMs are now; those that were fetched as they came.
pub(crate) fn sources(
    c: &ClientOp,
    mut fetched: Copies,
    cluster: &dyn ClusterView,
) -> HashMap<usize, CopySource> {
    let mut found = HashMap::new();
    for (index, op) in c.op.ops.iter().enumerate().filter(|(_, op)| copies(op)) {
        // One that does not decode fails when it runs.
        let Ok(source) = source_of(op) else { continue };
        let located = cluster.locate(&source.oloc, &source.oid, op.copy_from().snap);
        let place = match (located, fetched.remove(&index)) {
            (Located::NoPool, _) => CopySource::Nowhere,
            (Located::Local(object), None) => CopySource::Here(object),
            (Located::Local(object) | Located::Remote(object), copy) => {
                CopySource::Fetched(object, copy.unwrap_or(Err(Errno::EIO)))
            }
        };
        found.insert(index, place);
    }
    found
}

/// What was fetched of them, for another execution.
pub(crate) fn fetched_of(sources: HashMap<usize, CopySource>) -> Copies {
    let fetched = |(index, source)| match source {
        CopySource::Fetched(_, copy) => Some((index, copy)),
        CopySource::Here(_) | CopySource::Nowhere => None,
    };
    sources.into_iter().filter_map(fetched).collect()
}

impl Pg {
    /// Asks for the sources that live elsewhere and are not in `fetched` yet (where an object lives may have
    /// changed meanwhile); how many these are.
    pub(crate) fn fetch_sources(
        &mut self,
        job: JobId,
        c: &ClientOp,
        fetched: &Copies,
        ctx: &mut Context<'_>,
    ) -> usize {
        let mut missing = 0;
        for (index, op) in c.op.ops.iter().enumerate() {
            if !copies(op) || fetched.contains_key(&index) {
                continue;
            }
            let Ok(source) = source_of(op) else { continue };
            let located = ctx.cluster.locate(&source.oloc, &source.oid, op.copy_from().snap);
            // Members get the data itself: what a transaction shares with another PG's object they need not have.
            let object = match located {
                Located::Remote(object) => Some(object),
                Located::Local(object) if self.backend.is_shared() => Some(object),
                _ => None,
            };
            if let Some(object) = object {
                let id = self.front.parked.begin_fetch(job, index);
                ctx.out.push(Output::FetchObject { id, object });
                missing += 1;
            }
        }
        missing
    }
}
