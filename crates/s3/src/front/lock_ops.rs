//! Object lock: which versions may not be removed, as S3 says it. What a lock holds is `version::Lock`'s and `history`'s.

use super::errors::{coded, invalid};
use super::permit::Ask;
use super::raw::{self, Leaf};
use super::times::{DATES_END, epoch_ms, timestamp};
use super::{Front, attributes};
use crate::Error;
use crate::buckets::Known;
use crate::history::{Versioning, Which};
use crate::policy::Action;
use crate::rados::Pool;
use crate::record::Entry;
use crate::settings::{DefaultRetention, ObjectLock};
use crate::version::{Lock, Retention};
use s3s::dto::{
    self, GetObjectLegalHoldInput, GetObjectLegalHoldOutput, GetObjectLockConfigurationInput,
    GetObjectLockConfigurationOutput, GetObjectRetentionInput, GetObjectRetentionOutput,
    ObjectLockConfiguration, ObjectLockEnabled, ObjectLockLegalHold, ObjectLockLegalHoldStatus,
    ObjectLockMode, ObjectLockRetention, ObjectLockRetentionMode, ObjectLockRule, PutObjectLegalHoldInput,
    PutObjectLockConfigurationInput, PutObjectRetentionInput, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

/// AWS's.
const DAYS_MAX: i32 = 36_500;
const YEARS_MAX: i32 = 100;
const LEAVES: [(&str, Leaf); 6] = [
    ("ObjectLockEnabled", Leaf::Text),
    ("Mode", Leaf::Text),
    ("Days", Leaf::Number),
    ("Years", Leaf::Number),
    ("RetainUntilDate", Leaf::Text),
    ("Status", Leaf::Text),
];

fn malformed(what: impl Into<String>) -> S3Error {
    coded(S3ErrorCode::MalformedXML, what)
}

fn no_lock() -> S3Error {
    coded(
        S3ErrorCode::InvalidRequest,
        "Bucket is missing Object Lock Configuration",
    )
}

fn is_compliance(mode: &str) -> Option<bool> {
    match mode {
        ObjectLockRetentionMode::COMPLIANCE => Some(true),
        ObjectLockRetentionMode::GOVERNANCE => Some(false),
        _ => None,
    }
}

fn mode_name(compliance: bool) -> &'static str {
    match compliance {
        true => ObjectLockRetentionMode::COMPLIANCE,
        false => ObjectLockRetentionMode::GOVERNANCE,
    }
}

fn default_retention(given: &dto::DefaultRetention) -> S3Result<DefaultRetention> {
    let mode = given.mode.as_ref().map(|m| m.as_str());
    let compliance = mode.and_then(is_compliance);
    let compliance = compliance.ok_or_else(|| malformed("Mode is GOVERNANCE or COMPLIANCE"))?;
    let of = |n: i32, most: i32| match n {
        n if n <= 0 => Err(invalid(
            "Default retention period must be a positive integer value.",
        )),
        n if n > most => Err(invalid(
            "Default retention period is at most 36500 days, or 100 years",
        )),
        n => Ok(n.unsigned_abs()),
    };
    let (days, years) = match (given.days, given.years) {
        (Some(days), None) => (of(days, DAYS_MAX)?, 0),
        (None, Some(years)) => (0, of(years, YEARS_MAX)?),
        _ => return Err(malformed("a DefaultRetention has Days or Years, and not both")),
    };
    Ok(DefaultRetention {
        compliance,
        days,
        years,
    })
}

fn object_lock(given: Option<&ObjectLockConfiguration>) -> S3Result<ObjectLock> {
    let given = given.ok_or_else(|| malformed("no ObjectLockConfiguration"))?;
    let enabled = given.object_lock_enabled.as_ref().map(|e| e.as_str());
    if enabled != Some(ObjectLockEnabled::ENABLED) {
        return Err(malformed("ObjectLockEnabled is Enabled: it cannot be turned off"));
    }
    let Some(rule) = &given.rule else {
        return Ok(ObjectLock::default());
    };
    let retention = rule.default_retention.as_ref();
    let retention = retention.ok_or_else(|| malformed("a Rule has a DefaultRetention"))?;
    Ok(ObjectLock {
        retention: Some(default_retention(retention)?),
    })
}

/// Headers that come with what is put.
pub struct Given<'a> {
    pub mode: Option<&'a str>,
    pub until: Option<&'a Timestamp>,
    pub hold: Option<&'a str>,
}

/// The headers of a request.
macro_rules! lock_given {
    ($input:expr) => {
        $crate::front::lock_ops::Given {
            mode: $input.object_lock_mode.as_ref().map(|m| m.as_str()),
            until: $input.object_lock_retain_until_date.as_ref(),
            hold: $input.object_lock_legal_hold_status.as_ref().map(|h| h.as_str()),
        }
    };
}
pub(super) use lock_given;

fn lock_of(given: &Given<'_>, now: u64) -> S3Result<Lock> {
    let retention = match (given.mode, given.until) {
        (None, None) => None,
        (Some(mode), Some(until)) => {
            let compliance = is_compliance(mode).ok_or_else(|| invalid("Unknown wormMode directive."))?;
            Some(Retention {
                compliance,
                until: future(until, now)?,
            })
        }
        _ => {
            return Err(invalid(
                "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied",
            ));
        }
    };
    let hold = match given.hold {
        None | Some(ObjectLockLegalHoldStatus::OFF) => false,
        Some(ObjectLockLegalHoldStatus::ON) => true,
        Some(_) => return Err(invalid("Legal Hold must be either of 'ON' or 'OFF'")),
    };
    Ok(Lock { retention, hold })
}

fn future(at: &Timestamp, now: u64) -> S3Result<u64> {
    let at = epoch_ms(at).filter(|at| *at > now);
    match at.ok_or_else(|| invalid("The retain until date must be in the future!"))? {
        // With an offset one may be: nobody could be told of it.
        DATES_END.. => Err(invalid("The retain until date must not be after the year 9999")),
        at => Ok(at),
    }
}

/// The action is the same with an id and without, but a condition may look at it.
fn of_version<'a>(action: Action, (bucket, key): (&'a str, &'a str), which: Which) -> Ask<'a> {
    Ask::object(action, bucket, key).version(which, action)
}

/// Whether a retention may follow one that holds. `bypass`: by who may end one of governance.
fn may_follow(now: Option<Retention>, next: Option<Retention>, at: u64, bypass: bool) -> bool {
    let Some(now) = now.filter(|r| r.until > at) else {
        return true;
    };
    let extends = next.is_some_and(|n| n.compliance == now.compliance && n.until >= now.until);
    extends || (bypass && !now.compliance)
}

impl<P: Pool> Front<P> {
    /// The lock of what is put, for who may set one.
    pub(super) fn new_lock<T>(
        &self,
        req: &S3Request<T>,
        known: &Known,
        (bucket, key): (&str, &str),
        given: &Given<'_>,
    ) -> S3Result<Lock> {
        let lock = lock_of(given, self.clock.now_ms())?;
        let said = given.mode.is_some() || given.hold.is_some();
        if said && known.settings.of.lock.is_none() {
            return Err(no_lock());
        }
        if lock.retention.is_some() {
            self.demand(req, known, &Ask::object(Action::PutObjectRetention, bucket, key))?;
        }
        if given.hold.is_some() {
            self.demand(req, known, &Ask::object(Action::PutObjectLegalHold, bucket, key))?;
        }
        Ok(lock)
    }

    /// Whether whoever asks for it may end retentions of governance.
    pub(super) fn bypasses<T>(
        &self,
        req: &S3Request<T>,
        known: &Known,
        (bucket, key, which): (&str, &str, Which),
        asked: Option<bool>,
    ) -> S3Result<bool> {
        let ask = of_version(Action::BypassGovernanceRetention, (bucket, key), which);
        Ok(asked == Some(true) && known.settings.of.lock.is_some() && self.right(req, known, &ask)?)
    }

    /// What answers say of a lock, to who may see it: retention, and legal hold.
    pub(super) fn said_lock<T>(
        &self,
        req: &S3Request<T>,
        known: &Known,
        (bucket, key, which): (&str, &str, Which),
        entry: &Entry,
    ) -> Lock {
        if entry.lock == Lock::default() {
            return entry.lock;
        }
        let sees = |action| {
            let ask = of_version(action, (bucket, key), which);
            self.right(req, known, &ask).unwrap_or(false)
        };
        Lock {
            retention: entry.lock.retention.filter(|_| sees(Action::GetObjectRetention)),
            hold: entry.lock.hold && sees(Action::GetObjectLegalHold),
        }
    }

    pub async fn set_lock(&self, req: S3Request<PutObjectLockConfigurationInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutBucketObjectLockConfiguration, &req.input.bucket);
        self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        let lock = object_lock(req.input.object_lock_configuration.as_ref())?;
        self.try_change_settings(&req, ask, |s| {
            if s.versioning != Versioning::Enabled {
                return Err(coded(
                    S3ErrorCode::InvalidBucketState,
                    "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
                ));
            }
            s.lock = Some(lock);
            Ok(())
        })
        .await
    }

    pub async fn lock(
        &self,
        req: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<GetObjectLockConfigurationOutput> {
        let ask = Ask::bucket(Action::GetBucketObjectLockConfiguration, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let Some(lock) = known.settings.of.lock else {
            return Err(coded(
                S3ErrorCode::ObjectLockConfigurationNotFoundError,
                "Object Lock configuration does not exist for this bucket",
            ));
        };
        let said = |n: u32| i32::try_from(n).ok().filter(|n| *n > 0);
        let rule = |r: DefaultRetention| ObjectLockRule {
            default_retention: Some(dto::DefaultRetention {
                days: said(r.days),
                mode: Some(ObjectLockRetentionMode::from_static(mode_name(r.compliance))),
                years: said(r.years),
            }),
        };
        Ok(GetObjectLockConfigurationOutput {
            object_lock_configuration: Some(ObjectLockConfiguration {
                object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
                rule: lock.retention.map(rule),
            }),
        })
    }

    pub async fn set_retention(&self, req: S3Request<PutObjectRetentionInput>) -> S3Result<()> {
        let input = &req.input;
        let which = attributes::which(input.version_id.as_deref())?;
        let of = (input.bucket.as_str(), input.key.as_str());
        let ask = of_version(Action::PutObjectRetention, of, which);
        let known = self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        if known.settings.of.lock.is_none() {
            return Err(no_lock());
        }
        let given = input
            .retention
            .as_ref()
            .ok_or_else(|| malformed("no Retention"))?;
        let now = self.clock.now_ms();
        let mode = given.mode.as_ref().map(|m| m.as_str());
        let next = match (mode, &given.retain_until_date) {
            (None, None) => None,
            (Some(mode), Some(until)) => Some(Retention {
                compliance: is_compliance(mode)
                    .ok_or_else(|| malformed("Mode is GOVERNANCE or COMPLIANCE"))?,
                until: future(until, now)?,
            }),
            _ => return Err(malformed("a Retention has a Mode and a RetainUntilDate")),
        };
        let bypass = self.bypasses(
            &req,
            &known,
            (of.0, of.1, which),
            input.bypass_governance_retention,
        )?;
        let amended = self.objects.amend(&known.bucket.id, of.1, which, |entry| {
            if !may_follow(entry.lock.retention, next, now, bypass) {
                return Err(Error::Locked);
            }
            entry.lock.retention = next;
            Ok(())
        });
        Ok(amended.await.map(drop)?)
    }

    pub async fn set_hold(&self, req: S3Request<PutObjectLegalHoldInput>) -> S3Result<()> {
        let input = &req.input;
        let which = attributes::which(input.version_id.as_deref())?;
        let ask = of_version(Action::PutObjectLegalHold, (&input.bucket, &input.key), which);
        let known = self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        if known.settings.of.lock.is_none() {
            return Err(no_lock());
        }
        let status = input.legal_hold.as_ref().and_then(|h| h.status.as_ref());
        let hold = match status.map(|s| s.as_str()) {
            Some(ObjectLockLegalHoldStatus::ON) => true,
            Some(ObjectLockLegalHoldStatus::OFF) => false,
            _ => return Err(malformed("Status of a LegalHold is ON or OFF")),
        };
        let amended = self.objects.amend(&known.bucket.id, &input.key, which, |entry| {
            entry.lock.hold = hold;
            Ok(())
        });
        Ok(amended.await.map(drop)?)
    }

    /// A version whose lock is asked for.
    async fn locked<T>(
        &self,
        req: &S3Request<T>,
        action: Action,
        (bucket, key, id): (&str, &str, Option<&str>),
    ) -> S3Result<Entry> {
        let which = attributes::which(id)?;
        let ask = of_version(action, (bucket, key), which);
        let known = self.permitted(req, &ask).await?;
        match known.settings.of.lock {
            Some(_) => self.version(&known, key, which).await,
            None => Err(no_lock()),
        }
    }

    pub async fn retention(
        &self,
        req: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<GetObjectRetentionOutput> {
        let input = &req.input;
        let of = (
            input.bucket.as_str(),
            input.key.as_str(),
            input.version_id.as_deref(),
        );
        let retention = self
            .locked(&req, Action::GetObjectRetention, of)
            .await?
            .lock
            .retention;
        let retention = retention.ok_or_else(no_configuration)?;
        Ok(GetObjectRetentionOutput {
            retention: Some(ObjectLockRetention {
                mode: Some(ObjectLockRetentionMode::from_static(mode_name(
                    retention.compliance,
                ))),
                retain_until_date: Some(timestamp(retention.until)),
            }),
        })
    }

    pub async fn hold(&self, req: S3Request<GetObjectLegalHoldInput>) -> S3Result<GetObjectLegalHoldOutput> {
        let input = &req.input;
        let of = (
            input.bucket.as_str(),
            input.key.as_str(),
            input.version_id.as_deref(),
        );
        let hold = self.locked(&req, Action::GetObjectLegalHold, of).await?.lock.hold;
        Ok(GetObjectLegalHoldOutput {
            legal_hold: Some(ObjectLockLegalHold {
                status: Some(ObjectLockLegalHoldStatus::from_static(hold_name(hold))),
            }),
        })
    }
}

fn no_configuration() -> S3Error {
    coded(
        S3ErrorCode::NoSuchObjectLockConfiguration,
        "The specified object does not have a ObjectLock configuration",
    )
}

pub fn hold_name(hold: bool) -> &'static str {
    match hold {
        true => ObjectLockLegalHoldStatus::ON,
        false => ObjectLockLegalHoldStatus::OFF,
    }
}

pub fn said_mode(lock: &Lock) -> Option<ObjectLockMode> {
    let retention = lock.retention?;
    Some(ObjectLockMode::from_static(mode_name(retention.compliance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_may_grow_and_shrinks_for_few() {
        let of = |compliance, until| Some(Retention { compliance, until });
        for (now, next, bypass, want) in [
            (None, of(true, 20), false, true),
            (of(false, 20), of(false, 20), false, true),
            (of(false, 20), of(false, 30), false, true),
            (of(false, 20), of(false, 19), false, false),
            (of(false, 20), of(true, 30), false, false),
            (of(false, 20), None, false, false),
            (of(false, 20), of(false, 19), true, true),
            (of(false, 20), of(true, 30), true, true),
            (of(false, 20), None, true, true),
            (of(true, 20), of(true, 30), false, true),
            (of(true, 20), of(true, 19), true, false),
            (of(true, 20), of(false, 30), true, false),
            (of(true, 20), None, true, false),
            // It is over.
            (of(true, 10), None, false, true),
            (of(true, 10), of(false, 11), false, true),
        ] {
            assert_eq!(
                may_follow(now, next, 10, bypass),
                want,
                "{now:?} {next:?} {bypass}"
            );
        }
    }

    #[test]
    fn headers_are_whole_or_refused() {
        let at = timestamp(20_500);
        let of = |mode, until, hold| lock_of(&Given { mode, until, hold }, 10_000);
        let lock = of(Some("COMPLIANCE"), Some(&at), Some("ON")).unwrap();
        let retention = Retention {
            compliance: true,
            until: 20_500,
        };
        assert_eq!((lock.retention, lock.hold), (Some(retention), true));
        assert_eq!(of(None, None, None).unwrap(), Lock::default());
        let past = timestamp(10_000);
        for (mode, until, hold) in [
            (Some("COMPLIANCE"), None, None),
            (None, Some(&at), None),
            (Some("governance"), Some(&at), None),
            (Some("GOVERNANCE"), Some(&past), None),
            (None, None, Some("on")),
        ] {
            assert!(of(mode, until, hold).is_err(), "{mode:?} {until:?} {hold:?}");
        }
    }

    #[test]
    fn retentions_end_with_the_year_9999() {
        let until = |text| {
            future(
                &Timestamp::parse(dto::TimestampFormat::DateTime, text).unwrap(),
                1,
            )
        };
        assert!(until("9999-12-31T23:59:59-12:00").is_err());
        assert_eq!(until("9999-12-31T23:59:59Z").unwrap(), DATES_END - 1000);
    }
}
