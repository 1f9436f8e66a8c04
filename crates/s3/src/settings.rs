//! What a bucket's owner has set of it, besides its ACL: one row beside the bucket's record, which has its number, so that a request
//! to a bucket with settings reads them once and then only looks whether they are the same.
//!
//! A gateway of before refuses buckets with settings that it does not know, rather than serve them without: the records' versions
//! say so.

use crate::container::{Container, Grants};
use crate::history::Versioning;
use crate::lifecycle::{DAY, Rule};
use crate::logs::Logging;
use crate::notify::Notification;
use crate::policy::Policy;
use crate::version::Retention;
use crate::website::Website;
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buckets whose settings are remembered.
const CACHED_MAX: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorsRule {
    pub id: String,
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub expose: Vec<String>,
    pub max_age: Option<u32>,
}

denc::envelope_denc!(CorsRule, 1, 1, { id, origins, methods, headers, expose, max_age });

/// What shall not be public, whatever ACLs and policies say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// New public ACLs are refused.
    pub acls: bool,
    /// Those that are there do not count.
    pub ignore_acls: bool,
    /// New public policies are refused.
    pub policy: bool,
    /// One that is there lets nobody in but the owner.
    pub restrict: bool,
}

denc::envelope_denc!(Block, 1, 1, { acls, ignore_acls, policy, restrict });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub cors: Vec<CorsRule>,
    /// The text as it was put; empty: there is none.
    pub policy: String,
    pub block: Option<Block>,
    pub lifecycle: Vec<Rule>,
    pub versioning: Versioning,
    /// Versions may be locked; what is put is for so long, if at all.
    pub lock: Option<ObjectLock>,
    /// What is put is sealed with a key of the gateway, unless the client brings one.
    pub encrypt: bool,
    pub website: Option<Website>,
    /// What is set of it as a container of Swift.
    pub container: Option<Container>,
    /// What is told of changes, and to whom.
    pub notifications: Vec<Notification>,
    /// Where lines of what is asked of it go.
    pub logging: Option<Logging>,
    /// There may be objects that end by themselves: who does not know of it would hand them out after their time.
    pub ending: bool,
}

/// What is put without a retention of its own has this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectLock {
    pub retention: Option<DefaultRetention>,
}

denc::envelope_denc!(ObjectLock, 1, 1, { retention });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultRetention {
    pub compliance: bool,
    /// One of the two is not 0.
    pub days: u32,
    pub years: u32,
}

denc::envelope_denc!(DefaultRetention, 1, 1, { compliance, days, years });

impl DefaultRetention {
    /// Of what is put then (milliseconds since 1970).
    pub fn from(&self, at: u64) -> Retention {
        let end = at.saturating_add(u64::from(self.days).saturating_mul(DAY));
        Retention {
            compliance: self.compliance,
            until: years_after(end, u64::from(self.years)),
        }
    }
}

/// The same time of the same day so many years later; of a 29th of February the first of March.
fn years_after(ms: u64, years: u64) -> u64 {
    if years == 0 {
        return ms;
    }
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let length = |y: u64| if is_leap(y) { 366 } else { 365 };
    let (mut year, mut day) = (1970, ms / DAY);
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    // Counted from the first of March where both have one: days before it are of the year's beginning.
    let before_march = |y: u64| if is_leap(y) { 60 } else { 59 };
    let skipped: u64 = (year..year + years).map(length).sum();
    let shift = match day >= before_march(year) {
        true => before_march(year + years) as i64 - before_march(year) as i64,
        // The 29th of February is one of the days before, and the same number as the first of March elsewhere.
        false => 0,
    };
    ms.saturating_add(skipped * DAY)
        .saturating_add_signed(shift * DAY as i64)
}

/// The newest version that this program writes and reads.
pub const KNOWN: u8 = WITH_FILTERS;
const WITH_POLICY: u8 = 2;
const WITH_LIFECYCLE: u8 = 3;
const WITH_VERSIONING: u8 = 4;
const WITH_ENCRYPTION: u8 = 5;
const WITH_WEBSITE: u8 = 6;
const WITH_CONTAINER: u8 = 7;
/// And of logging.
const WITH_NOTIFICATIONS: u8 = 8;
const WITH_ENDING: u8 = 9;
/// Of notifications, by what objects have.
const WITH_FILTERS: u8 = 10;

impl Encode for Settings {
    /// Under the first version that has all that is set.
    fn encode(&self, w: &mut Writer) {
        let rights = !self.policy.is_empty() || self.block.is_some();
        let versions = self.versioning != Versioning::Off || self.lock.is_some();
        let version = match (self.lifecycle.is_empty(), rights) {
            _ if self.notifications.iter().any(Notification::looks_inside) => WITH_FILTERS,
            _ if self.ending => WITH_ENDING,
            _ if !self.notifications.is_empty() || self.logging.is_some() => WITH_NOTIFICATIONS,
            _ if self.container.is_some() => WITH_CONTAINER,
            _ if self.website.is_some() => WITH_WEBSITE,
            _ if self.encrypt => WITH_ENCRYPTION,
            _ if versions => WITH_VERSIONING,
            (false, _) => WITH_LIFECYCLE,
            (true, true) => WITH_POLICY,
            (true, false) => 1,
        };
        w.envelope(version, version, |w| {
            w.put(&self.cors);
            if version >= WITH_POLICY {
                w.put(&self.policy);
                w.put(&self.block);
            }
            if version >= WITH_LIFECYCLE {
                w.put(&self.lifecycle);
            }
            if version >= WITH_VERSIONING {
                w.put(&self.versioning);
                w.put(&self.lock);
            }
            if version >= WITH_ENCRYPTION {
                w.bool(self.encrypt);
            }
            if version >= WITH_WEBSITE {
                w.put(&self.website);
            }
            if version >= WITH_CONTAINER {
                w.put(&self.container);
            }
            if version >= WITH_NOTIFICATIONS {
                w.put(&self.notifications);
                w.put(&self.logging);
            }
            if version >= WITH_ENDING {
                w.bool(self.ending);
            }
        });
    }
}

impl Decode for Settings {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(KNOWN, |version, r| {
            let mut settings = Self {
                cors: r.get()?,
                ..Self::default()
            };
            if version >= WITH_POLICY {
                settings.policy = r.get()?;
                settings.block = r.get()?;
            }
            if version >= WITH_LIFECYCLE {
                settings.lifecycle = r.get()?;
            }
            if version >= WITH_VERSIONING {
                settings.versioning = r.get()?;
                settings.lock = r.get()?;
            }
            if version >= WITH_ENCRYPTION {
                settings.encrypt = r.bool()?;
            }
            if version >= WITH_WEBSITE {
                settings.website = r.get()?;
            }
            if version >= WITH_CONTAINER {
                settings.container = r.get()?;
            }
            if version >= WITH_NOTIFICATIONS {
                settings.notifications = r.get()?;
                settings.logging = r.get()?;
            }
            if version >= WITH_ENDING {
                settings.ending = r.bool()?;
            }
            Ok(settings)
        })
    }
}

/// Settings as requests need them.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    pub of: Settings,
    pub policy: Option<Policy>,
    pub grants: Option<Grants>,
}

impl Ready {
    /// A policy that cannot be read any more lets nobody do anything, but for its owner to replace it.
    pub fn new(of: Settings, bucket: &str) -> Self {
        let text = Some(&of.policy).filter(|p| !p.is_empty());
        let policy = text.map(|text| {
            Policy::parse(text, bucket).unwrap_or_else(|e| {
                tracing::error!("s3: bucket {bucket}: its policy cannot be read: {e}");
                Policy::closed()
            })
        });
        let grants = of.container.as_ref().map(|c| Grants::of(c, bucket));
        Self { of, policy, grants }
    }

    pub fn block(&self) -> Block {
        self.of.block.unwrap_or_default()
    }
}

/// Settings as they were read, by the id of their bucket and their number.
#[derive(Clone, Default)]
pub struct Cache(Arc<Mutex<BTreeMap<String, Cached>>>);

type Cached = (u64, Arc<Ready>);

impl Cache {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Cached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, id: &str, number: u64) -> Option<Arc<Ready>> {
        let all = self.all();
        let (of, settings) = all.get(id)?;
        (*of == number).then(|| settings.clone())
    }

    pub fn put(&self, id: &str, number: u64, settings: Arc<Ready>) {
        let mut all = self.all();
        if all.len() >= CACHED_MAX && !all.contains_key(id) {
            all.clear();
        }
        all.insert(id.to_string(), (number, settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_newer_gateway_are_refused() {
        let mut w = Writer::new();
        w.envelope(KNOWN + 1, KNOWN + 1, |w| w.u32(0));
        let newer = Settings::from_bytes(&w.finish());
        assert!(matches!(newer, Err(denc::Error::TooNew { compat, .. }) if compat == KNOWN + 1));
    }

    #[test]
    fn who_does_not_know_of_a_setting_refuses_it() {
        let first = |settings: &Settings| settings.to_bytes()[0];
        let cors = Settings {
            cors: vec![CorsRule::default()],
            ..Settings::default()
        };
        let policy = Settings {
            policy: "{}".into(),
            ..cors.clone()
        };
        let block = Settings {
            block: Some(Block::default()),
            ..cors.clone()
        };
        let lifecycle = Settings {
            lifecycle: vec![Rule::default()],
            ..cors.clone()
        };
        let both = Settings {
            policy: "{}".into(),
            ..lifecycle.clone()
        };
        assert_eq!((first(&cors), first(&policy), first(&block)), (1, 2, 2));
        let versions = Settings {
            versioning: Versioning::Suspended,
            ..cors.clone()
        };
        let lock = Settings {
            versioning: Versioning::Enabled,
            lock: Some(ObjectLock {
                retention: Some(DefaultRetention {
                    compliance: true,
                    days: 3,
                    years: 0,
                }),
            }),
            ..both.clone()
        };
        assert_eq!((first(&lifecycle), first(&both)), (3, 3));
        let encrypt = Settings {
            encrypt: true,
            ..Settings::default()
        };
        let website = Settings {
            website: Some(Website::default()),
            ..both.clone()
        };
        assert_eq!((first(&versions), first(&lock), first(&encrypt)), (4, 4, 5));
        let container = Settings {
            container: Some(Container {
                meta: BTreeMap::from([("a".into(), "b".into())]),
                read: ".r:*".into(),
                write: String::new(),
            }),
            ..lock.clone()
        };
        let notifications = Settings {
            notifications: vec![Notification {
                id: "i".into(),
                topic: "t".into(),
                events: vec!["s3:ObjectCreated:*".into()],
                prefix: "p".into(),
                ..Notification::default()
            }],
            ..Settings::default()
        };
        let mut filters = notifications.clone();
        filters.notifications[0].tags = BTreeMap::from([("a".into(), "b".into())]);
        let logging = Settings {
            logging: Some(Logging {
                target: "t".into(),
                prefix: "p".into(),
            }),
            ..Settings::default()
        };
        assert_eq!((first(&website), first(&container)), (6, 7));
        let ending = Settings {
            ending: true,
            ..Settings::default()
        };
        assert_eq!(
            (first(&notifications), first(&logging), first(&ending)),
            (8, 8, 9)
        );
        assert_eq!(first(&filters), 10);
        for settings in [
            filters,
            ending,
            logging,
            notifications,
            container,
            cors,
            policy,
            block,
            lifecycle,
            both,
            versions,
            lock,
            encrypt,
            website,
        ] {
            let bytes = settings.to_bytes();
            assert_eq!(bytes[0], bytes[1]);
            assert_eq!(Settings::from_bytes(&bytes).unwrap(), settings);
        }
    }

    #[test]
    fn a_default_retention_is_counted_by_the_calendar() {
        let at = |days: u64| days * DAY + 5;
        let of = |days, years| DefaultRetention {
            compliance: false,
            days,
            years,
        };
        assert_eq!(of(10, 0).from(at(1)).until, at(11));
        // 1970-01-01, 1971-12-31, 1972-02-28, 1972-02-29, 1972-03-01.
        for (from, years, to) in [
            (0, 1, 365),
            (0, 3, 365 + 365 + 366),
            (729, 1, 1095),
            (788, 1, 1154),
            (789, 1, 1155),
            (790, 1, 1155),
            (790, 4, 790 + 1461),
            (1154, 3, 1154 + 3 * 365),
            (1155, 3, 1155 + 3 * 365 + 1),
        ] {
            assert_eq!(of(0, years).from(at(from)).until, at(to), "{from} {years}");
        }
    }

    #[test]
    fn what_is_remembered_is_of_that_number_and_bounded() {
        let cache = Cache::default();
        cache.put("a", 1, Arc::default());
        assert!(cache.get("a", 1).is_some() && cache.get("a", 2).is_none());
        for n in 0..3 * CACHED_MAX {
            cache.put(&n.to_string(), 1, Arc::default());
            assert!(cache.all().len() <= CACHED_MAX);
        }
    }
}
