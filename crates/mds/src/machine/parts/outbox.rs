//! What leaves when what it depends on is durable.

use super::events::Effect;
use super::tx::{ClientId, Conn};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
struct Waiting {
    tx: u64,
    effect: Effect,
    /// The second answer to a request of this client, which depends on no order.
    safe_for: Option<ClientId>,
}

#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Waiting>,
    /// Messages that wait, without second answers.
    busy: BTreeMap<Conn, usize>,
    /// Somebody waits for so many.
    urgent: usize,
}

/// Somebody waits for it; other work is in no hurry.
fn is_urgent(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Send { .. } | Effect::Close { .. } | Effect::Fence { .. } | Effect::Report(_)
    )
}

impl Outbox {
    pub fn add(&mut self, tx: u64, effect: Effect) {
        if let Effect::Send { conn, .. } = &effect {
            *self.busy.entry(*conn).or_default() += 1;
        }
        self.urgent += usize::from(is_urgent(&effect));
        self.queue.push_back(Waiting {
            tx,
            effect,
            safe_for: None,
        });
    }

    pub fn add_safe(&mut self, tx: u64, client: ClientId, effect: Effect) {
        self.queue.push_back(Waiting {
            tx,
            effect,
            safe_for: Some(client),
        });
    }

    /// The next that may leave, and whether it was a second answer, and whose.
    pub fn pop(&mut self, durable: u64) -> Option<(Effect, Option<ClientId>)> {
        if self.queue.front()?.tx > durable {
            return None;
        }
        let w = self.queue.pop_front()?;
        if w.safe_for.is_none() {
            self.urgent -= usize::from(is_urgent(&w.effect));
            if let Effect::Send { conn, .. } = &w.effect
                && let Some(n) = self.busy.get_mut(conn)
            {
                *n -= 1;
                if *n == 0 {
                    self.busy.remove(conn);
                }
            }
        }
        Some((w.effect, w.safe_for))
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// What is sent now would overtake something.
    pub fn is_busy(&self, conn: Conn) -> bool {
        self.busy.contains_key(&conn)
    }

    pub fn is_urgent(&self) -> bool {
        self.urgent > 0
    }
}
