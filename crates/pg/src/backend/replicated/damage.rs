//! What a member could not read of its copy, until the primary is told.
//!
//! Bound: [`REPORTED_MAX`] objects; one is told once in [`REPORT_AGAIN`].

use std::collections::BTreeMap;
use std::time::Duration;
use types::HObject;

const REPORT_AGAIN: Duration = Duration::from_secs(10);
const REPORTED_MAX: usize = 64;

/// What a member could not read, and when it said so.
#[derive(Debug, Default)]
pub(crate) struct DamageMet {
    fresh: Vec<HObject>,
    reported: BTreeMap<HObject, Duration>,
}

impl DamageMet {
    pub fn meet(&mut self, head: HObject) {
        if self.fresh.len() < REPORTED_MAX && !self.fresh.contains(&head) {
            self.fresh.push(head);
        }
    }

    /// What the primary has to be told now.
    pub fn tell(&mut self, now: Duration) -> Vec<HObject> {
        if self.fresh.is_empty() {
            return Vec::new();
        }
        self.reported.retain(|_, at| now < *at + REPORT_AGAIN);
        let mut out = std::mem::take(&mut self.fresh);
        let room = REPORTED_MAX - self.reported.len();
        out.retain(|head| !self.reported.contains_key(head));
        out.truncate(room);
        self.reported.extend(out.iter().map(|head| (head.clone(), now)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn object(n: u32) -> HObject {
        let none = Bytes::new();
        HObject::new(1, n, none.clone(), none, "a".into(), types::NOSNAP)
    }

    #[test]
    fn it_is_told_once_in_a_while_and_no_more_than_is_remembered() {
        let mut d = DamageMet::default();
        let at = Duration::from_secs;
        let mut meet = |n: u32, now| {
            (0..n).for_each(|n| d.meet(object(n)));
            d.tell(now).len()
        };
        assert_eq!(meet(2, at(1)), 2);
        assert_eq!(meet(3, at(2)), 1, "two were told");
        assert_eq!(meet(3, at(11)), 2, "again");
        assert_eq!(meet(500, at(11)), REPORTED_MAX - 3);
        assert_eq!(meet(500, at(12)), 1, "one more is to be told again");
    }
}
