//! Storage classes: names that clients give with what they put, and the pools whose data they are. STANDARD is always there.
//!
//! ```text
//! in `classes`:  c NAME      Class: number, pool, whether it takes no more
//!                n NUMBER    (NAME): numbers are never used again
//! ```
//!
//! Entries have the number of the place of their data (`record::Place`), so a class stays for all time, with its pool. What is withdrawn takes
//! nothing new; what is in it is read, moved and deleted as before.
//!
//! Bounds: [`CLASSES_MAX`]. What was read is good for [`KNOWN_FOR`]; a number that is not known is looked for at once.

use crate::accounts::all_rows;
use crate::rados::{Change, Pool};
use crate::record::Place;
use crate::{Clock, Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const CLASSES: &str = "classes";
/// The one that is meant where none is named.
pub const STANDARD: &str = "STANDARD";
const CLASSES_MAX: usize = 64;
const NAME_MAX: usize = 32;
/// How long what was read is good (milliseconds).
const KNOWN_FOR: u64 = 5000;
const TRIES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub place: Place,
    /// The pool of its data.
    pub pool: String,
    /// It takes nothing new.
    pub withdrawn: bool,
}

denc::envelope_denc!(Class, 1, 1, { place, pool, withdrawn });

/// Opens a pool by its name.
pub type Opener<P> = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<P>> + Send>> + Send + Sync>;

#[derive(Default)]
struct Known<P> {
    /// When it was read (milliseconds since 1970); None: never.
    at: Option<u64>,
    classes: BTreeMap<String, Class>,
    pools: BTreeMap<Place, P>,
}

/// Clones are the same.
pub struct Classes<P> {
    meta: P,
    standard: P,
    open: Opener<P>,
    clock: Clock,
    known: Arc<Mutex<Known<P>>>,
}

impl<P: Clone> Clone for Classes<P> {
    fn clone(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            standard: self.standard.clone(),
            open: self.open.clone(),
            clock: self.clock.clone(),
            known: self.known.clone(),
        }
    }
}

fn class_row(name: &str) -> Bytes {
    [b"c", name.as_bytes()].concat().into()
}

fn number_row(place: Place) -> Bytes {
    format!("n{:010}", place.0).into()
}

fn check_name(name: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    match name != STANDARD && (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(good) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a storage class is named in capitals, digits, _ and -, {NAME_MAX} at most, and not {STANDARD}"
        ))),
    }
}

impl<P: Pool> Classes<P> {
    /// `standard`: the pool of STANDARD.
    pub fn new(meta: P, standard: P, open: Opener<P>, clock: Clock) -> Self {
        let known = Known {
            at: None,
            classes: BTreeMap::new(),
            pools: BTreeMap::new(),
        };
        Self {
            meta,
            standard,
            open,
            clock,
            known: Arc::new(Mutex::new(known)),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known<P>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them but STANDARD, as they are now.
    pub async fn all(&self) -> Result<BTreeMap<String, Class>> {
        let at = self.clock.now_ms();
        let rows = match all_rows(&self.meta, CLASSES, &Bytes::from_static(b"c")).await {
            // Nobody has made the first.
            Err(e) if e.is_not_found() => Vec::new(),
            other => other?,
        };
        let class = |(row, value): (Bytes, Bytes)| {
            let name = String::from_utf8_lossy(&row[1..]).into_owned();
            Ok((name, Class::from_bytes(&value)?))
        };
        let classes: BTreeMap<String, Class> = rows.into_iter().map(class).collect::<Result<_>>()?;
        let mut known = self.known();
        (known.at, known.classes) = (Some(at), classes.clone());
        Ok(classes)
    }

    async fn recent(&self) -> Result<BTreeMap<String, Class>> {
        {
            let known = self.known();
            let now = self.clock.now_ms();
            if known.at.is_some_and(|at| now.abs_diff(at) < KNOWN_FOR) {
                return Ok(known.classes.clone());
            }
        }
        self.all().await
    }

    /// Where what is put in this class goes to; empty: STANDARD. None: there is no such class, or it takes nothing new.
    pub async fn open_to(&self, name: &str) -> Result<Option<Place>> {
        Ok(match name {
            "" | STANDARD => Some(Place::STANDARD),
            name => self
                .recent()
                .await?
                .get(name)
                .filter(|class| !class.withdrawn)
                .map(|class| class.place),
        })
    }

    /// The same of what has begun already, which goes on.
    pub async fn place(&self, name: &str) -> Result<Place> {
        match name {
            "" | STANDARD => Ok(Place::STANDARD),
            name => {
                let known = self.known().classes.get(name).map(|c| c.place);
                if let Some(place) = known {
                    return Ok(place);
                }
                let all = self.all().await?;
                let class = all.get(name);
                class
                    .map(|c| c.place)
                    .ok_or_else(|| Error::Damaged(format!("the storage class {name} is not there")))
            }
        }
    }

    /// The pool that data of this place are in.
    pub async fn pool(&self, place: Place) -> Result<P> {
        if place == Place::STANDARD {
            return Ok(self.standard.clone());
        }
        if let Some(pool) = self.known().pools.get(&place) {
            return Ok(pool.clone());
        }
        let all = self.all().await?;
        let name = all.values().find(|c| c.place == place).map(|c| c.pool.clone());
        let name =
            name.ok_or_else(|| Error::Damaged(format!("the storage class {} is not there", place.0)))?;
        let pool = match (self.open)(name.clone()).await {
            // It would be taken for an object that is not there.
            Err(e) if e.is_not_found() => {
                let what = format!("the pool {name} of a storage class is not there");
                return Err(Error::Damaged(what));
            }
            other => other?,
        };
        self.known().pools.insert(place, pool.clone());
        Ok(pool)
    }

    /// Has a class take what is put into it, in a pool that is there. One that was withdrawn takes again; its pool is the same for all time.
    pub async fn add(&self, name: &str, pool: &str) -> Result<Class> {
        check_name(name)?;
        (self.open)(pool.to_string()).await?;
        for _ in 0..TRIES_MAX {
            let all = self.all().await?;
            let row = class_row(name);
            let next = all.values().map(|c| c.place.0).max().unwrap_or(0) + 1;
            let (class, change) = match all.get(name) {
                Some(there) if there.pool != pool => {
                    return Err(Error::Invalid(format!(
                        "the data of {name} are in the pool {}: another class is wanted for another pool",
                        there.pool
                    )));
                }
                Some(there) => {
                    let class = Class {
                        withdrawn: false,
                        ..there.clone()
                    };
                    let change = Change::default().expecting(&row, Some(&there.to_bytes()));
                    (class, change)
                }
                None if all.len() >= CLASSES_MAX => {
                    return Err(Error::Invalid(format!(
                        "there are {CLASSES_MAX} storage classes at most"
                    )));
                }
                None => {
                    let class = Class {
                        place: Place(next),
                        pool: pool.to_string(),
                        withdrawn: false,
                    };
                    let number = number_row(class.place);
                    let change = Change::default()
                        .expecting(&row, None)
                        .expecting(&number, None)
                        .setting(&number, name.to_string().to_bytes());
                    (class, change)
                }
            };
            let change = change.setting(&row, class.to_bytes());
            if self.set(change).await? {
                return Ok(class);
            }
        }
        Err(Error::Conflict("others change storage classes"))
    }

    /// It takes nothing new from now on (other gateways hear of it within seconds).
    pub async fn withdraw(&self, name: &str) -> Result<Class> {
        for _ in 0..TRIES_MAX {
            let all = self.all().await?;
            let Some(there) = all.get(name) else {
                return Err(Error::Invalid(format!("there is no storage class {name}")));
            };
            let class = Class {
                withdrawn: true,
                ..there.clone()
            };
            let row = class_row(name);
            let change = Change::default()
                .expecting(&row, Some(&there.to_bytes()))
                .setting(&row, class.to_bytes());
            if self.set(change).await? {
                return Ok(class);
            }
        }
        Err(Error::Conflict("others change storage classes"))
    }

    /// False: others were faster.
    async fn set(&self, change: Change) -> Result<bool> {
        let set = match self.meta.change(CLASSES, change).await {
            Err(e) if e.is_conflict() => Ok(false),
            other => other.map(|()| true),
        };
        self.known().at = None;
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts;
    use crate::fake::Fake;

    fn run<F: Future>(main: F) -> F::Output {
        io::task::block_on(main).unwrap()
    }

    #[test]
    fn a_pool_that_is_not_there_is_no_object_that_is_not() {
        run(async {
            let fake = Fake::new(1);
            accounts::ensure(&fake, CLASSES).await.unwrap();
            fake.classes().add("COLD", "cold").await.unwrap();
            let none: Opener<Fake> = Arc::new(|_| {
                let e = client::Error::refused(-types::Errno::ENOENT.0, "pool");
                Box::pin(async { Err(Error::Rados(e)) })
            });
            let classes = Classes::new(fake.clone(), fake.clone(), none, fake.clock());
            assert!(matches!(classes.pool(Place(1)).await, Err(Error::Damaged(_))));
        });
    }

    #[test]
    fn names_are_kept_with_their_pools_for_all_time() {
        run(async {
            let fake = Fake::new(1);
            let classes = fake.classes();
            accounts::ensure(&fake, CLASSES).await.unwrap();
            assert_eq!(classes.open_to("").await, Ok(Some(Place::STANDARD)));
            assert_eq!(classes.open_to(STANDARD).await, Ok(Some(Place::STANDARD)));
            assert_eq!(classes.open_to("COLD").await, Ok(None));
            let cold = classes.add("COLD", "cold").await.unwrap();
            let ice = classes.add("ICE_9", "ice").await.unwrap();
            assert_eq!((cold.place, ice.place), (Place(1), Place(2)));
            assert_eq!(classes.open_to("COLD").await, Ok(Some(Place(1))));
            assert!(matches!(classes.add("COLD", "ice").await, Err(Error::Invalid(_))));
            classes.withdraw("ICE_9").await.unwrap();
            assert_eq!(classes.open_to("ICE_9").await, Ok(None));
            // What is in it is there, and no other gets its number.
            assert_eq!(classes.place("ICE_9").await, Ok(Place(2)));
            assert!(classes.pool(Place(2)).await.is_ok());
            assert_eq!(classes.add("C3", "c").await.unwrap().place, Place(3));
            assert_eq!(classes.add("ICE_9", "ice").await.unwrap(), ice);
            assert!(matches!(classes.pool(Place(9)).await, Err(Error::Damaged(_))));
            for bad in ["", STANDARD, "cold", "A B", &"A".repeat(33)] {
                assert!(
                    matches!(classes.add(bad, "p").await, Err(Error::Invalid(_))),
                    "{bad}"
                );
            }
            for n in 3..CLASSES_MAX {
                classes.add(&format!("X{n}"), "p").await.unwrap();
            }
            assert!(matches!(classes.add("MORE", "p").await, Err(Error::Invalid(_))));
            assert!(matches!(classes.withdraw("MORE").await, Err(Error::Invalid(_))));
        });
    }

    #[test]
    fn another_gateway_hears_of_it() {
        run(async {
            let fake = Fake::new(2);
            accounts::ensure(&fake, CLASSES).await.unwrap();
            let (one, other) = (fake.classes(), fake.classes());
            assert_eq!(other.open_to("COLD").await, Ok(None));
            one.add("COLD", "cold").await.unwrap();
            assert_eq!(other.open_to("COLD").await, Ok(None));
            // A number that it has not heard of is looked for.
            assert!(other.pool(Place(1)).await.is_ok());
            fake.pass(std::time::Duration::from_secs(6));
            assert_eq!(other.open_to("COLD").await, Ok(Some(Place(1))));
        });
    }
}
