//! Questions that are under way: who wants to know the same meanwhile waits for what comes of the one that was asked, and asks nothing.

use super::Refused;
use super::cache::Name;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Who waits for one answer: so whoever asks the same all the time leaves room for others.
pub const OF_ONE_MAX: usize = 128;

/// What came of a question; None: it is under way.
type Outcome<T> = Option<Result<T, Refused>>;

pub struct Flights<T>(Mutex<BTreeMap<Name, Following<T>>>);

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
    /// Another does, and too many wait for it.
    Full,
}

impl<T: Clone> Flights<T> {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, Following<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn join(&self, name: Name) -> Joined<'_, T> {
        let mut all = self.all();
        if let Some(under_way) = all.get(&name) {
            // One of them is kept here.
            return match Arc::strong_count(&under_way.counted) > OF_ONE_MAX {
                true => Joined::Full,
                false => Joined::Waits(under_way.clone()),
            };
        }
        let (tell, hear) = watch::channel(None);
        let counted = Arc::default();
        all.insert(name, Following { hear, counted });
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
#[derive(Clone)]
pub struct Following<T> {
    hear: watch::Receiver<Outcome<T>>,
    /// As many as there are.
    counted: Arc<()>,
}

impl<T: Clone> Following<T> {
    /// None: who asked has gone before there was an answer.
    pub async fn heard(mut self) -> Option<Result<T, Refused>> {
        let said = self.hear.wait_for(Option::is_some).await.ok()?;
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
            // Who asks the same too often waits for nothing, and others do.
            let Joined::Asks(_asking) = flights.join([1; 32]) else {
                panic!("nobody asks")
            };
            let mut waits: Vec<_> = (0..OF_ONE_MAX).map(|_| flights.join([1; 32])).collect();
            assert!(waits.iter().all(|w| matches!(w, Joined::Waits(_))));
            assert!(matches!(flights.join([1; 32]), Joined::Full));
            assert!(matches!(flights.join([2; 32]), Joined::Asks(_)));
            waits.pop();
            assert!(matches!(flights.join([1; 32]), Joined::Waits(_)));
        };
        task::block_on(all).unwrap();
    }
}
