//! Questions that are under way: who wants to know the same meanwhile waits for what comes of the one that was asked, and asks nothing.

use super::Refused;
use super::cache::Name;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What came of a question; None: it is under way.
type Outcome<T> = Option<Result<T, Refused>>;

pub struct Flights<T>(Mutex<BTreeMap<Name, watch::Receiver<Outcome<T>>>>);

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Who is to do what.
pub enum Joined<'a, T: Clone> {
    /// Nobody asks this yet.
    Asks(Asking<'a, T>),
    /// Another does.
    Waits(Following<T>),
}

impl<T: Clone> Flights<T> {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, watch::Receiver<Outcome<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn join(&self, name: Name) -> Joined<'_, T> {
        let mut all = self.all();
        if let Some(under_way) = all.get(&name) {
            return Joined::Waits(Following(under_way.clone()));
        }
        let (tell, hear) = watch::channel(None);
        all.insert(name, hear);
        Joined::Asks(Asking { of: self, name, tell })
    }
}

/// Whoever asks. However this ends, nobody waits for it any more.
pub struct Asking<'a, T: Clone> {
    of: &'a Flights<T>,
    name: Name,
    tell: watch::Sender<Outcome<T>>,
}

impl<T: Clone> Asking<'_, T> {
    /// What came of it, for all who wait.
    pub fn ends(self, with: &Result<T, Refused>) {
        self.tell.send_replace(Some(with.clone()));
    }
}

impl<T: Clone> Drop for Asking<'_, T> {
    fn drop(&mut self) {
        self.of.all().remove(&self.name);
    }
}

/// Who waits.
pub struct Following<T>(watch::Receiver<Outcome<T>>);

impl<T: Clone> Following<T> {
    /// None: who asked has gone before there was an answer.
    pub async fn heard(mut self) -> Option<Result<T, Refused>> {
        let said = self.0.wait_for(Option::is_some).await.ok()?;
        said.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::task;

    #[test]
    fn one_asks_and_all_hear() {
        let all = async {
            let flights = Flights::<u32>::default();
            let Joined::Asks(asking) = flights.join([1; 32]) else {
                panic!("nobody asked before")
            };
            assert!(
                matches!(flights.join([2; 32]), Joined::Asks(_)),
                "another question"
            );
            let Joined::Waits(waits) = flights.join([1; 32]) else {
                panic!("it is under way")
            };
            asking.ends(&Ok(7));
            assert_eq!(waits.heard().await, Some(Ok(7)));
            // It is over: the next one asks anew. And if who asks goes away, nobody waits for ever.
            let Joined::Asks(asking) = flights.join([1; 32]) else {
                panic!("it is over")
            };
            let Joined::Waits(waits) = flights.join([1; 32]) else {
                panic!("it is under way")
            };
            drop(asking);
            assert_eq!(waits.heard().await, None);
            assert!(flights.all().is_empty());
        };
        task::block_on(all).unwrap();
    }
}
