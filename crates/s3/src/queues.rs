//! Whether the queues of topics are what is said of them: for `skep s3 check`, which reads alone while gateways go on.

use crate::Result;
use crate::check::{Check, Report};
use crate::notify::{Event, queued_at};
use crate::rados::Pool;
use crate::topics::{Queue, Topic};
use bytes::Bytes;
use denc::Decode;

/// Looks at a queue that others change.
const TRIES_MAX: usize = 16;

/// A queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    said: Queue,
    rows: u64,
    bytes: u64,
    unread: u64,
}

impl Seen {
    fn problem(&self) -> Option<String> {
        let said = &self.said;
        if self.unread > 0 {
            Some(format!("{} events that cannot be read", self.unread))
        } else if (said.rows, said.bytes) != (self.rows, self.bytes) {
            Some(format!(
                "{} events of {} bytes in place of {} of {}",
                self.rows, self.bytes, said.rows, said.bytes
            ))
        } else {
            None
        }
    }
}

impl<P: Pool> Check<P> {
    pub(crate) async fn queues(&self, report: &mut Report) -> Result<()> {
        for (row, raw) in self.topics.rows().await? {
            report.topics += 1;
            let topic = match Topic::from_bytes(&raw) {
                Ok(topic) => topic,
                Err(e) => {
                    report.tell(format!("topic {}: {e}", row.escape_ascii()));
                    continue;
                }
            };
            match self.queue(&topic, report).await {
                Ok(None) => {}
                Ok(Some(problem)) => {
                    report.tell(format!("topic {} of {}: {problem}", topic.name, topic.owner));
                }
                Err(e) => report.tell(format!("topic {} of {}: its queue: {e}", topic.name, topic.owner)),
            }
        }
        Ok(())
    }

    async fn queue(&self, topic: &Topic, report: &mut Report) -> Result<Option<String>> {
        let mut before = None;
        for _ in 0..TRIES_MAX {
            let seen = match self.at_once(&topic.id).await {
                Ok(None) => continue,
                Ok(Some(seen)) => seen,
                Err(e) if e.is_not_found() => {
                    // Removed meanwhile, with its topic.
                    let there = self.topics.get(&topic.owner, &topic.name).await?;
                    let still = there.is_some_and(|t| t.id == topic.id);
                    return Ok(still.then(|| "its queue is not there".into()));
                }
                Err(e) => return Err(e),
            };
            // What does not fit is looked at once more: it may have been changed and changed back between two looks.
            let problem = seen.problem();
            if problem.is_none() || before == Some(seen) {
                report.events += seen.rows;
                report.dropped += seen.said.full + seen.said.old;
                return Ok(problem);
            }
            before = Some(seen);
        }
        report.changing += 1;
        Ok(None)
    }

    /// All of a queue; None: it was changed meanwhile.
    async fn at_once(&self, id: &str) -> Result<Option<Seen>> {
        let (mut after, mut said) = (Bytes::new(), None);
        let (mut rows, mut bytes, mut unread) = (0, 0, 0);
        loop {
            let part = self.topics.part(id, &after).await?;
            if said.as_ref().is_some_and(|s| *s != part.said) {
                return Ok(None);
            }
            for (row, value) in &part.rows {
                let readable = Event::from_bytes(value).is_ok() && queued_at(row).is_some();
                rows += 1;
                bytes += value.len() as u64;
                unread += u64::from(!readable);
            }
            match part.rows.last() {
                Some((row, _)) if part.more => after = row.clone(),
                _ => {
                    // None was brought there yet.
                    let said = part.said.map(|raw| Queue::from_bytes(&raw)).transpose()?;
                    return Ok(Some(Seen {
                        said: said.unwrap_or_default(),
                        rows,
                        bytes,
                        unread,
                    }));
                }
            }
            said = Some(part.said);
        }
    }
}
