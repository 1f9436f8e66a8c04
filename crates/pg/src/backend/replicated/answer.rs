//! What a member does for the primary's scrub: looks at its objects, and gives the steps that make one anew, whole or
//! in pieces.
//!
//! Invariants: nothing here changes an object. The data is read beside the loop: an answer leaves when all of it was
//! looked at, and what it speaks of is durable.
//!
//! Bound: [`WORKS_MAX`] questions; a primary has no more on their way.

use super::local::LocalCopy;
use super::repair::piece::{self, FIX_BYTES_MAX};
use super::{anew_steps, is_large};
use crate::api::Context;
use crate::backend::digest::{Walk, versions_of};
use crate::store::{IoError, ObjectStore, Ticket};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{Outline, Part, ScrubBody};
use types::{EVersion, Epoch, Errno, HObject, ObjectId, Op, OsdId, SPgId, Transaction};

/// Questions that wait for the disk.
const WORKS_MAX: usize = 64;

#[derive(Debug)]
enum What {
    Look(Box<Walk>),
    Give {
        what: Box<Asked>,
        tickets: Vec<Ticket>,
        left: usize,
    },
}

/// What is to be given.
#[derive(Debug)]
enum Asked {
    Whole(HObject, HObject),
    Outline(HObject, HObject),
    Part(HObject, EVersion, Part),
}

impl What {
    fn give(what: Asked, tickets: Vec<Ticket>) -> Self {
        Self::Give {
            what: Box::new(what),
            left: tickets.len(),
            tickets,
        }
    }
}

/// One question of the primary.
#[derive(Debug)]
pub(crate) struct Work {
    asker: OsdId,
    interval: Epoch,
    token: u64,
    what: What,
    /// Its connection has ended.
    dead: bool,
}

/// All questions that were not answered.
#[derive(Debug, Default)]
pub(crate) struct Works(Vec<Work>);

impl Works {
    pub fn disconnected(&mut self, osd: OsdId) {
        self.0
            .iter_mut()
            .filter(|w| w.asker == osd)
            .for_each(|w| w.dead = true);
    }

    /// Whose questions wait, and of which interval.
    pub fn askers(&self) -> impl Iterator<Item = (OsdId, Epoch)> + '_ {
        self.0.iter().filter(|w| !w.dead).map(|w| (w.asker, w.interval))
    }

    pub fn leave(self, store: &mut dyn ObjectStore) {
        for w in self.0 {
            match w.what {
                What::Look(walk) => walk.leave(store),
                What::Give { tickets, .. } => tickets.into_iter().for_each(|t| store.release(t)),
            }
        }
    }

    /// Takes in whose read has ended; false: nobody's here.
    fn ended(&mut self, ticket: Ticket) -> bool {
        for w in &mut self.0 {
            match &mut w.what {
                What::Look(walk) => {
                    if walk.ended(ticket) {
                        return true;
                    }
                }
                What::Give { tickets, left, .. } => {
                    if tickets.contains(&ticket) {
                        *left -= 1;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Answers to what needs nothing of the disk any more.
    fn go_on(&mut self, id: SPgId, store: &mut dyn ObjectStore) -> Vec<(OsdId, Epoch, ScrubBody)> {
        let mut out = Vec::new();
        for mut w in std::mem::take(&mut self.0) {
            let ready = match &mut w.what {
                What::Look(_) if w.dead => true,
                What::Look(walk) => walk.go_on(store),
                What::Give { left, .. } => *left == 0,
            };
            if !ready {
                self.0.push(w);
                continue;
            }
            let (to, interval, dead) = (w.asker, w.interval, w.dead);
            if let Some(body) = answer(id, w, store).filter(|_| !dead) {
                out.push((to, interval, body));
            }
        }
        out
    }
}

fn answer(id: SPgId, w: Work, store: &mut dyn ObjectStore) -> Option<ScrubBody> {
    let token = w.token;
    match w.what {
        What::Look(walk) if w.dead => {
            walk.leave(store);
            None
        }
        What::Look(walk) => {
            let (items, next) = walk.into_found();
            Some(ScrubBody::Digests { token, items, next })
        }
        What::Give { what, tickets, .. } => {
            let body = give(id, token, *what, store);
            tickets.into_iter().for_each(|t| store.release(t));
            Some(body)
        }
    }
}

fn give(id: SPgId, token: u64, what: Asked, store: &mut dyn ObjectStore) -> ScrubBody {
    let at = |object| ObjectId {
        shard: id.shard,
        object,
    };
    let mut txn = Transaction::new(id);
    match what {
        Asked::Whole(from, to) => {
            let steps = whole(&at(from), &to, store);
            let result = match steps {
                Ok(Some(ops)) => {
                    txn.ops = ops;
                    0
                }
                Ok(None) => Errno::EFBIG.code(),
                Err(e) => {
                    tracing::error!("pg {id}: {to}: cannot be given to the primary: {e}");
                    Errno::EIO.code()
                }
            };
            ScrubBody::Pulled { token, result, txn }
        }
        Asked::Outline(from, to) => {
            let (result, outline) = match piece::outline(&at(from), &to, store) {
                Ok(outline) => (0, outline),
                Err(e) => {
                    tracing::info!("pg {id}: {e}");
                    (Errno::EIO.code(), Outline::default())
                }
            };
            ScrubBody::Outlined {
                token,
                result,
                outline,
            }
        }
        Asked::Part(object, version, part) => {
            let (result, next) = match piece::piece(&at(object), version, &part, store) {
                Ok((ops, next)) => {
                    txn.ops = ops;
                    (0, next)
                }
                Err(e) => (e.code(), None),
            };
            ScrubBody::Pieced {
                token,
                result,
                next,
                txn,
            }
        }
    }
}

/// The steps that make all of it anew, if they are not too much for one transaction.
fn whole(start: &ObjectId, to: &HObject, store: &mut dyn ObjectStore) -> Result<Option<Vec<Op>>, IoError> {
    // A copy that lacks a clone says nothing of the whole.
    piece::outline(start, to, store)?;
    match is_large(start, to, FIX_BYTES_MAX, store)? {
        true => Ok(None),
        false => anew_steps(start, to, FIX_BYTES_MAX, store),
    }
}

impl LocalCopy {
    /// A question of the primary of `interval`.
    pub(crate) fn scrub_asked(
        &mut self,
        asker: OsdId,
        interval: Epoch,
        body: ScrubBody,
        ctx: &mut Context<'_>,
    ) {
        let shard = self.id().shard;
        let start = |object: &HObject| ObjectId {
            shard,
            object: object.clone(),
        };
        let (token, what) = match body {
            ScrubBody::Digest {
                token,
                from,
                to,
                deep,
            } => match Walk::begin(&start(&from), &to, deep, ctx.store) {
                Ok(walk) => (token, What::Look(Box::new(walk))),
                Err(e) => return self.cannot_scrub(asker, interval, &e.to_string(), ctx),
            },
            ScrubBody::Pull { token, from, to } => {
                let large = is_large(&start(&from), &to, FIX_BYTES_MAX, ctx.store).unwrap_or(true);
                let objects = match large {
                    true => Vec::new(),
                    false => versions_of(&start(&from), &to, ctx.store).unwrap_or_default(),
                };
                let prefetch = |object: &HObject| ctx.store.prefetch(&start(object), 0, FIX_BYTES_MAX);
                let tickets = objects.iter().filter_map(prefetch).collect();
                (token, What::give(Asked::Whole(from, to), tickets))
            }
            ScrubBody::Outline { token, from, to } => {
                (token, What::give(Asked::Outline(from, to), Vec::new()))
            }
            ScrubBody::Piece {
                token,
                object,
                version,
                part,
            } => {
                let ticket = piece::prefetch(&start(&object), &part, ctx.store);
                let tickets = ticket.into_iter().collect();
                (token, What::give(Asked::Part(object, version, part), tickets))
            }
            ScrubBody::Digests { .. }
            | ScrubBody::Pulled { .. }
            | ScrubBody::Outlined { .. }
            | ScrubBody::Pieced { .. }
            | ScrubBody::Damaged { .. } => return,
        };
        if self.works.0.len() >= WORKS_MAX {
            Works(vec![Work {
                asker,
                interval,
                token,
                what,
                dead: true,
            }])
            .leave(ctx.store);
            return self.cannot_scrub(asker, interval, "too many questions at a time", ctx);
        }
        self.works.0.push(Work {
            asker,
            interval,
            token,
            what,
            dead: false,
        });
        self.scrub_on(ctx);
    }

    fn cannot_scrub(&mut self, asker: OsdId, interval: Epoch, why: &str, ctx: &mut Context<'_>) {
        tracing::error!("pg {}: scrub: {why}", self.id());
        // Sequence number 0 is no transaction's: the primary takes the member for failed.
        let body = PeerBody::Applied {
            seq: 0,
            result: Errno::EIO.code(),
        };
        self.answer_when_durable(asker, interval, body, ctx.store);
    }

    fn scrub_on(&mut self, ctx: &mut Context<'_>) {
        let id = self.id();
        for (to, interval, body) in self.works.go_on(id, ctx.store) {
            self.answer_when_durable(to, interval, PeerBody::Scrub(body), ctx.store);
        }
    }

    /// A read that [`crate::ObjectReads::prefetch`] started has ended, well or not.
    /// False: it was not begun here.
    pub fn prefetched(&mut self, ticket: Ticket, ctx: &mut Context<'_>) -> bool {
        if let Some(answer) = self.units.ended(self.id(), ticket, ctx.store) {
            self.give_units(answer, ctx);
            return true;
        }
        let ours = self.works.ended(ticket);
        if ours {
            self.scrub_on(ctx);
        }
        ours
    }
}
