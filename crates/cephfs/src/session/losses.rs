//! What the session keeps of unsafe answers ([`super::safe`] says what these are): the answers, who waits for their end, what was lost.

use client::Error;
use messages::fs::MClientReply;
use tokio::sync::oneshot;
use types::Errno;

/// Lost changes that are kept apart; of more than that everybody is told.
const LOST_MAX: usize = 1024;

/// An unsafe answer.
pub struct Early {
    /// Which of them it was.
    pub order: u64,
    /// The number of what it made or changed; 0: it does not say.
    pub ino: u64,
    /// None: its caller has it.
    pub reply: Option<MClientReply>,
}

/// The number of the last change that was lost, and whether one is to be told.
pub type Safety = (u64, crate::Result<()>);

/// Somebody asks whether what he was answered is durable.
pub struct Syncing {
    /// The last request that it is about.
    pub upto: u64,
    pub ino: Option<u64>,
    pub since: u64,
    pub reply: oneshot::Sender<Safety>,
}

#[derive(Debug)]
struct Lost {
    number: u64,
    /// None: it may have been any.
    inos: Option<Vec<u64>>,
    told: bool,
}

/// What was answered and came to nothing.
#[derive(Debug, Default)]
pub struct Losses {
    all: Vec<Lost>,
    number: u64,
}

impl Losses {
    pub fn add(&mut self, inos: Vec<u64>) -> u64 {
        self.number += 1;
        let is_full = self.all.len() >= LOST_MAX;
        if is_full {
            self.all.clear();
        }
        self.all.push(Lost {
            number: self.number,
            inos: (!is_full).then_some(inos),
            told: false,
        });
        self.number
    }

    /// `ino` None: of all. `since`: the last one at the time when the handle was opened, or was told.
    pub fn tell(&mut self, ino: Option<u64>, since: u64) -> Safety {
        let concerns = |l: &Lost| match (&l.inos, ino) {
            (Some(inos), Some(ino)) => inos.contains(&ino),
            _ => true,
        };
        let mut done = Ok(());
        for lost in self.all.iter_mut().filter(|l| concerns(l)) {
            if lost.number > since || !lost.told {
                lost.told = true;
                done = Err(Error::invalid(
                    Errno::EIO,
                    "a change that had been answered was lost with the metadata server",
                ));
            }
        }
        (self.number, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_is_told_once_and_somebody_is_told() {
        let mut all = Losses::default();
        assert!(all.tell(Some(7), 0).1.is_ok());
        assert_eq!(all.add(vec![1, 7]), 1);
        // Of another file, opened before.
        assert!(all.tell(Some(8), 0).1.is_ok());
        // Two handles that were open, and one that was opened afterwards.
        let (number, done) = all.tell(Some(7), 0);
        assert_eq!((number, done.unwrap_err().errno()), (1, Errno::EIO));
        assert!(all.tell(Some(7), number).1.is_ok());
        assert!(all.tell(Some(7), 0).1.is_err());
        assert!(all.tell(Some(7), 1).1.is_ok());
        // Nobody had it open: the first who opens it, or its directory, or who unmounts, is told.
        all.add(vec![1, 9]);
        assert!(all.tell(None, u64::MAX).1.is_err());
        assert!(all.tell(None, u64::MAX).1.is_ok());
        assert!(all.tell(Some(9), 2).1.is_ok());
    }

    #[test]
    fn where_there_are_too_many_everybody_is_told() {
        let mut all = Losses::default();
        for n in 0..LOST_MAX as u64 {
            all.add(vec![n + 10]);
        }
        assert!(all.tell(Some(1), 0).1.is_ok());
        all.add(vec![5]);
        assert_eq!(all.all.len(), 1);
        assert!(all.tell(Some(1), 0).1.is_err());
        assert!(all.tell(Some(10), 0).1.is_err());
        assert!(all.tell(Some(10), all.number).1.is_ok());
    }
}
