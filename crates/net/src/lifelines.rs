//! Lifelines that this side keeps: connections on which nothing is said, and whose end says that their keeper is gone.
//!
//! Vocabulary: the *keeper* is the OSD that was dialled, its *watcher* the OSD that dialled. The [`Lifelines`] belong to the
//! keeper, which drops them last of all that it has; the [`Intake`] is by which connections come in.
//!
//! Invariants: from the moment at which a watcher knows that it has a lifeline, the stream lies here. It ends by a FIN
//! only when the [`Lifelines`] are dropped, or with the process: every other end (a newer lifeline of the same watcher, a watcher
//! that closed it or spoke on it) is a reset. Nothing is ever waiting to be read here while the process lives by the rules, or the
//! kernel would make a reset of its death. Bounds: one for each watcher, [`KEPT_MAX`] in all.
//!
//! Not here: what a watcher makes of an end (`osd`).

use io::socket::Stream;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::{Rc, Weak};
use types::AuthName;

/// Watchers of one keeper: more OSDs than one has to do with.
pub const KEPT_MAX: usize = 4096;

type Kept = BTreeMap<AuthName, Stream>;

/// The owner's end.
#[derive(Debug, Default)]
pub struct Lifelines(Rc<RefCell<Kept>>);

impl Lifelines {
    pub fn intake(&self) -> Intake {
        Intake(Rc::downgrade(&self.0))
    }

    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Lets connections become lifelines; closed by default, and when the owner is gone.
#[derive(Debug, Clone, Default)]
pub struct Intake(Weak<RefCell<Kept>>);

impl Intake {
    /// Keeps the stream as the watcher's newest lifeline, and only then has `tell` tell the watcher of it. False: it is not
    /// kept, or not told.
    pub(crate) fn keep(&self, watcher: AuthName, stream: Stream, tell: impl FnOnce(&Stream) -> bool) -> bool {
        let Some(kept) = self.0.upgrade() else {
            return false;
        };
        let mut kept = kept.borrow_mut();
        let room = kept.len() < KEPT_MAX || kept.contains_key(&watcher);
        if !room
            || kept
                .get(&watcher)
                .is_some_and(|old| old.abort_on_close().is_err())
        {
            return false;
        }
        kept.insert(watcher.clone(), stream);
        let told = kept.get(&watcher).is_some_and(tell);
        if !told {
            end(&mut kept, &watcher);
        }
        told
    }

    /// Lets go of those whose watchers are gone.
    pub(crate) fn sweep(&self) {
        let Some(kept) = self.0.upgrade() else { return };
        let mut kept = kept.borrow_mut();
        let over: Vec<AuthName> = kept
            .iter()
            .filter(|(_, s)| is_over(s))
            .map(|(w, _)| w.clone())
            .collect();
        for watcher in over {
            end(&mut kept, &watcher);
        }
    }
}

/// Whatever there is to be read, it is not a watcher that watches.
fn is_over(stream: &Stream) -> bool {
    let mut one = Vec::with_capacity(1);
    !matches!(stream.try_read(&mut one), Err(e) if e.kind() == ErrorKind::WouldBlock)
}

/// Ends one while its keeper lives.
fn end(kept: &mut Kept, watcher: &AuthName) {
    // One that cannot be made to end by a reset stays.
    if kept.get(watcher).is_some_and(|s| s.abort_on_close().is_ok()) {
        kept.remove(watcher);
        tracing::debug!("the lifeline of {watcher} is over");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use io::socket::{Acceptor, Listener};
    use std::io::IoSlice;
    use std::net::SocketAddr;
    use types::EntityKind;

    fn osd(id: u32) -> AuthName {
        AuthName::new(EntityKind::Osd, id.to_string())
    }

    /// What the watcher reads at the end.
    async fn end(stream: &Stream) -> Result<usize, ErrorKind> {
        loop {
            stream.readable().await.map_err(|e| e.kind())?;
            match stream.try_read(&mut Vec::new().limit(16)) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                other => return other.map_err(|e| e.kind()),
            }
        }
    }

    struct Rig {
        lifelines: Lifelines,
        acceptor: Acceptor,
        at: SocketAddr,
    }

    impl Rig {
        fn new() -> Self {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let at = listener.local_addr().unwrap();
            Self {
                lifelines: Lifelines::default(),
                acceptor: listener.start().unwrap(),
                at,
            }
        }

        async fn watch(&self, id: u32, told: bool) -> (Stream, bool) {
            let watcher = Stream::connect(self.at).await.unwrap();
            let (stream, _) = self.acceptor.accept().await.unwrap();
            let kept = self.lifelines.intake().keep(osd(id), stream, |_| told);
            (watcher, kept)
        }
    }

    #[test]
    fn who_watches_no_more_is_let_go_and_who_speaks_is_reset() {
        io::task::block_on(async {
            let rig = Rig::new();
            let (gone, _) = rig.watch(1, true).await;
            let (speaks, _) = rig.watch(2, true).await;
            let (watches, _) = rig.watch(3, true).await;
            drop(gone);
            speaks.writable().await.unwrap();
            assert_eq!(speaks.try_write(&[IoSlice::new(b"?")]).unwrap(), 1);
            // The kernel takes a moment to hand both over.
            for _ in 0..10_000 {
                rig.lifelines.intake().sweep();
                if rig.lifelines.len() == 1 {
                    break;
                }
                io::task::sleep(std::time::Duration::from_millis(1)).await;
            }
            assert_eq!(rig.lifelines.len(), 1);
            assert_eq!(end(&speaks).await, Err(ErrorKind::ConnectionReset));
            drop(rig.lifelines);
            assert_eq!(end(&watches).await, Ok(0));
        })
        .unwrap();
    }

    #[test]
    fn one_that_was_not_told_is_not_kept() {
        io::task::block_on(async {
            let rig = Rig::new();
            let (watcher, kept) = rig.watch(1, false).await;
            assert!(!kept && rig.lifelines.is_empty());
            assert_eq!(end(&watcher).await, Err(ErrorKind::ConnectionReset));
            // An intake without lifelines.
            let intake = rig.lifelines.intake();
            drop(rig.lifelines);
            let _watcher = Stream::connect(rig.at).await.unwrap();
            let (stream, _) = rig.acceptor.accept().await.unwrap();
            assert!(!intake.keep(osd(2), stream, |_| true));
        })
        .unwrap();
    }

    /// What a SIGKILL does to a stream in whose queue something waits: no FIN, so no proof.
    #[test]
    fn with_something_unread_the_end_is_a_reset() {
        io::task::block_on(async {
            let rig = Rig::new();
            let (speaks, _) = rig.watch(1, true).await;
            speaks.writable().await.unwrap();
            assert_eq!(speaks.try_write(&[IoSlice::new(b"?")]).unwrap(), 1);
            io::task::sleep(std::time::Duration::from_millis(100)).await;
            drop(rig.lifelines);
            assert_eq!(end(&speaks).await, Err(ErrorKind::ConnectionReset));
        })
        .unwrap();
    }
}
