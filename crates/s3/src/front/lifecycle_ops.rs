//! Lifecycles of buckets: rules as S3 has them, what of them is refused, and what answers say of an object's end.

use super::Front;
use super::attributes::no_class;
use super::errors::invalid;
use super::permit::Ask;
use super::raw::{self, Leaf};
use super::texts::{DATES_END, Names, epoch_seconds, http_date, timestamp};
use crate::buckets::Known;
use crate::classes::STANDARD;
use crate::lifecycle::{DAY, Move, OlderMove, Rule, expires};
use crate::policy::Action;
use crate::rados::Pool;
use crate::record::Entry;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use std::collections::{BTreeMap, BTreeSet};

const RULES_MAX: usize = 1000;
const ID_MAX: usize = 255;
const PREFIX_MAX: usize = 1024;
/// Versions that are not the current one that a rule keeps.
const KEPT_MAX: u32 = 100;
/// Of all rules together: they are read with each change of settings.
const BYTES_MAX: usize = 64 << 10;
/// Of the configuration.
const LEAVES: [(&str, Leaf); 14] = [
    ("ID", Leaf::Text),
    ("Prefix", Leaf::Text),
    ("Status", Leaf::Text),
    ("Key", Leaf::Text),
    ("Value", Leaf::Text),
    ("Date", Leaf::Text),
    ("StorageClass", Leaf::Text),
    ("ExpiredObjectDeleteMarker", Leaf::Text),
    ("Days", Leaf::Number),
    ("DaysAfterInitiation", Leaf::Number),
    ("NoncurrentDays", Leaf::Number),
    ("NewerNoncurrentVersions", Leaf::Number),
    ("ObjectSizeGreaterThan", Leaf::Number),
    ("ObjectSizeLessThan", Leaf::Number),
];

fn malformed(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedXML, what.to_string())
}

fn unfit(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidRequest, what.to_string())
}

fn days(n: i32) -> S3Result<u32> {
    let n = u32::try_from(n).ok().filter(|n| *n > 0);
    n.ok_or_else(|| invalid("a number of days is positive"))
}

fn size(n: Option<i64>) -> S3Result<Option<u64>> {
    let n = n.map(u64::try_from).transpose();
    n.map_err(|_| invalid("a size is not negative"))
}

fn date(at: &Timestamp) -> S3Result<u64> {
    let ms = epoch_seconds(at).and_then(|s| s.checked_mul(1000));
    // With an offset one may be beyond the last year that can be said.
    let ms = ms.filter(|ms| ms % DAY == 0 && *ms < DATES_END);
    ms.ok_or_else(|| invalid("'Date' must be at midnight GMT, from 1970 to 9999"))
}

/// The parts of a filter, in whichever of its forms.
fn filter(given: LifecycleRuleFilter, rule: &mut Rule) -> S3Result<()> {
    let forms = [
        given.and.is_some(),
        given.prefix.is_some(),
        given.tag.is_some(),
        given.object_size_greater_than.is_some(),
        given.object_size_less_than.is_some(),
    ];
    if forms.iter().filter(|f| **f).count() > 1 {
        return Err(malformed("a filter with more than one part has them in And"));
    }
    let parts = match given.and {
        Some(and) if and == LifecycleRuleAndOperator::default() => {
            return Err(malformed("an And of nothing"));
        }
        Some(and) => and,
        None => LifecycleRuleAndOperator {
            object_size_greater_than: given.object_size_greater_than,
            object_size_less_than: given.object_size_less_than,
            prefix: given.prefix,
            tags: given.tag.map(|t| vec![t]),
        },
    };
    rule.prefix = parts.prefix;
    (rule.larger, rule.smaller) = (
        size(parts.object_size_greater_than)?,
        size(parts.object_size_less_than)?,
    );
    if let (Some(larger), Some(smaller)) = (rule.larger, rule.smaller)
        && larger >= smaller
    {
        return Err(unfit(
            "ObjectSizeLessThan has to be more than ObjectSizeGreaterThan",
        ));
    }
    for tag in parts.tags.unwrap_or_default() {
        let (Some(name), value) = (tag.key, tag.value.unwrap_or_default()) else {
            return Err(malformed("a tag without a key"));
        };
        if rule.tags.insert(name, value).is_some() {
            return Err(unfit("a tag is there twice"));
        }
    }
    rule.tags = super::attributes::check_tags(std::mem::take(&mut rule.tags))?;
    Ok(())
}

/// The class of a transition: back to STANDARD there is none, as AWS has it. Whether it is there is seen by who knows them all.
fn class(given: Option<&TransitionStorageClass>) -> S3Result<String> {
    match given.map(|c| c.as_str()) {
        None | Some("" | STANDARD) => Err(malformed(
            "a transition has a StorageClass, which is not STANDARD",
        )),
        Some(class) => Ok(class.to_string()),
    }
}

/// Days of a transition: 0 are the next midnight.
fn move_days(n: i32) -> S3Result<u32> {
    u32::try_from(n).map_err(|_| invalid("'Days' in a Transition action is not negative"))
}

/// To which classes current versions go, and when.
fn moves(given: &[Transition], rule: &mut Rule) -> S3Result<()> {
    for one in given {
        let (days, date) = match (one.days, &one.date) {
            (Some(n), None) => (Some(move_days(n)?), None),
            (None, Some(at)) => (None, Some(date(at)?)),
            _ => return Err(malformed("a Transition has Days, or a Date")),
        };
        let class = class(one.storage_class.as_ref())?;
        rule.moves.push(Move { days, date, class });
    }
    let dated = rule.moves.iter().map(|m| m.date.is_some());
    let dated = dated
        .chain(rule.days.map(|_| false))
        .chain(rule.date.map(|_| true));
    if dated.collect::<BTreeSet<_>>().len() > 1 {
        return Err(unfit(
            "Found mixed 'Date' and 'Days' based Expiration and Transition actions in a lifecycle rule",
        ));
    }
    let later = |m: &Move| m.days.zip(rule.days).is_some_and(|(m, e)| m >= e);
    if rule.moves.iter().any(later) {
        return Err(invalid(
            "'Days' in the Expiration action must be greater than 'Days' in the Transition action",
        ));
    }
    let later = |m: &Move| m.date.zip(rule.date).is_some_and(|(m, e)| m >= e);
    if rule.moves.iter().any(later) {
        return Err(invalid(
            "'Date' in the Expiration action must be later than 'Date' in the Transition action",
        ));
    }
    check_classes(rule.moves.iter().map(|m| m.class.as_str()))
}

/// And versions that are not the current one.
fn older_moves(given: &[NoncurrentVersionTransition], rule: &mut Rule) -> S3Result<()> {
    for one in given {
        let days = one
            .noncurrent_days
            .ok_or_else(|| malformed("no NoncurrentDays"))?;
        rule.older_moves.push(OlderMove {
            days: move_days(days)?,
            keep: kept(one.newer_noncurrent_versions)?,
            class: class(one.storage_class.as_ref())?,
        });
    }
    let later = |m: &OlderMove| rule.older.is_some_and(|e| m.days >= e);
    if rule.older_moves.iter().any(later) {
        return Err(invalid(
            "'NoncurrentDays' in the NoncurrentVersionExpiration action must be greater than 'NoncurrentDays' in the NoncurrentVersionTransition action",
        ));
    }
    check_classes(rule.older_moves.iter().map(|m| m.class.as_str()))
}

fn check_classes<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> S3Result<()> {
    let n = all.len();
    match all.collect::<BTreeSet<_>>().len() == n {
        true => Ok(()),
        false => Err(unfit(
            "'StorageClass' must be different for the transitions of a rule",
        )),
    }
}

/// How many of those that are not the current one stay as they are.
fn kept(given: Option<i32>) -> S3Result<u32> {
    let Some(n) = given else { return Ok(0) };
    let n = u32::try_from(n).ok().filter(|n| (1..=KEPT_MAX).contains(n));
    n.ok_or_else(|| invalid("NewerNoncurrentVersions is from 1 to 100"))
}

/// When a current version expires, or a delete marker that is all there is.
fn expiration(given: &LifecycleExpiration, rule: &mut Rule) -> S3Result<()> {
    rule.marker = given.expired_object_delete_marker == Some(true);
    match (given.days, &given.date) {
        (None, None) if rule.marker && rule.tags.is_empty() => {}
        (None, None) if rule.marker => {
            return Err(unfit("ExpiredObjectDeleteMarker cannot be specified with tags"));
        }
        (Some(n), None) if !rule.marker => rule.days = Some(days(n)?),
        (None, Some(at)) if !rule.marker => rule.date = Some(date(at)?),
        _ => {
            return Err(malformed(
                "an Expiration has Days, or a Date, or an ExpiredObjectDeleteMarker that is true",
            ));
        }
    }
    Ok(())
}

/// When versions go that are not the current one.
fn older(given: &NoncurrentVersionExpiration, rule: &mut Rule) -> S3Result<()> {
    let after = given.noncurrent_days;
    rule.older = Some(days(after.ok_or_else(|| malformed("no NoncurrentDays"))?)?);
    rule.keep = kept(given.newer_noncurrent_versions)?;
    Ok(())
}

fn rule(given: LifecycleRule, fresh: impl FnOnce() -> String) -> S3Result<Rule> {
    let mut rule = Rule {
        id: given.id.filter(|id| !id.is_empty()).unwrap_or_else(fresh),
        enabled: match given.status.as_str() {
            ExpirationStatus::ENABLED => true,
            ExpirationStatus::DISABLED => false,
            _ => return Err(malformed("Status is Enabled or Disabled")),
        },
        bare: given.prefix.is_some(),
        ..Rule::default()
    };
    match (given.prefix, given.filter) {
        (Some(prefix), None) => rule.prefix = Some(prefix),
        (None, Some(given)) => filter(given, &mut rule)?,
        // Not guessed: it might mean all objects.
        _ => return Err(malformed("a rule has a Filter, or a Prefix, and not both")),
    }
    if rule.id.len() > ID_MAX || rule.prefix.as_ref().is_some_and(|p| p.len() > PREFIX_MAX) {
        return Err(invalid("an ID has at most 255 bytes, a prefix 1024"));
    }
    if let Some(given) = given.expiration {
        expiration(&given, &mut rule)?;
    }
    if let Some(given) = given.noncurrent_version_expiration {
        older(&given, &mut rule)?;
    }
    if let Some(given) = given.abort_incomplete_multipart_upload {
        let after = given.days_after_initiation;
        rule.abort = Some(days(after.ok_or_else(|| malformed("no DaysAfterInitiation"))?)?);
        if !rule.tags.is_empty() || rule.larger.is_some() || rule.smaller.is_some() {
            return Err(unfit(
                "AbortIncompleteMultipartUpload cannot be specified with tags or sizes",
            ));
        }
    }
    moves(given.transitions.as_deref().unwrap_or_default(), &mut rule)?;
    let given = given.noncurrent_version_transitions;
    older_moves(given.as_deref().unwrap_or_default(), &mut rule)?;
    let still = rule.moves.is_empty() && rule.older_moves.is_empty() && !rule.marker;
    match (rule.days, rule.date, rule.abort, rule.older) {
        (None, None, None, None) if still => Err(malformed("a rule that does nothing")),
        _ => Ok(rule),
    }
}

fn rules(given: Vec<LifecycleRule>, fresh: impl Fn() -> String) -> S3Result<Vec<Rule>> {
    if given.is_empty() || given.len() > RULES_MAX {
        return Err(malformed("a lifecycle has 1 to 1000 rules"));
    }
    let rules: Vec<Rule> = given
        .into_iter()
        .map(|r| rule(r, &fresh))
        .collect::<S3Result<_>>()?;
    let ids: BTreeSet<&str> = rules.iter().map(|r| r.id.as_str()).collect();
    if ids.len() < rules.len() {
        return Err(invalid("Rule ID must be unique"));
    }
    match denc::Encode::to_bytes(&rules).len() > BYTES_MAX {
        true => Err(unfit("the rules have at most 64 KiB together")),
        false => Ok(rules),
    }
}

fn said_tags(tags: &BTreeMap<String, String>) -> TagSet {
    let tag = |(key, value): (&String, &String)| Tag {
        key: Some(key.clone()),
        value: Some(value.clone()),
    };
    tags.iter().map(tag).collect()
}

/// A rule's filter, in the form that has its parts.
fn said_filter(rule: &Rule) -> LifecycleRuleFilter {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let parts = LifecycleRuleAndOperator {
        object_size_greater_than: rule.larger.map(signed),
        object_size_less_than: rule.smaller.map(signed),
        prefix: rule.prefix.clone(),
        tags: Some(said_tags(&rule.tags)).filter(|t| !t.is_empty()),
    };
    let others = [
        rule.prefix.is_some(),
        rule.larger.is_some(),
        rule.smaller.is_some(),
    ];
    match rule.tags.len() + others.iter().filter(|o| **o).count() {
        0 | 1 => LifecycleRuleFilter {
            and: None,
            object_size_greater_than: parts.object_size_greater_than,
            object_size_less_than: parts.object_size_less_than,
            prefix: parts.prefix,
            tag: parts.tags.and_then(|mut t| t.pop()),
        },
        _ => LifecycleRuleFilter {
            and: Some(parts),
            ..LifecycleRuleFilter::default()
        },
    }
}

fn said(rule: &Rule) -> LifecycleRule {
    let signed = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let status = match rule.enabled {
        true => ExpirationStatus::ENABLED,
        false => ExpirationStatus::DISABLED,
    };
    let expiration = LifecycleExpiration {
        date: rule.date.map(timestamp),
        days: rule.days.map(signed),
        expired_object_delete_marker: rule.marker.then_some(true),
    };
    let moves = rule.moves.iter().map(|m| Transition {
        date: m.date.map(timestamp),
        days: m.days.map(signed),
        storage_class: Some(m.class.clone().into()),
    });
    let older_moves = rule.older_moves.iter().map(|m| NoncurrentVersionTransition {
        newer_noncurrent_versions: Some(signed(m.keep)).filter(|n| *n > 0),
        noncurrent_days: Some(signed(m.days)),
        storage_class: Some(m.class.clone().into()),
    });
    let expires = rule.days.is_some() || rule.date.is_some() || rule.marker;
    LifecycleRule {
        abort_incomplete_multipart_upload: rule.abort.map(|n| AbortIncompleteMultipartUpload {
            days_after_initiation: Some(signed(n)),
        }),
        expiration: expires.then_some(expiration),
        filter: (!rule.bare).then(|| said_filter(rule)),
        id: Some(rule.id.clone()),
        noncurrent_version_expiration: rule.older.map(|n| NoncurrentVersionExpiration {
            newer_noncurrent_versions: Some(signed(rule.keep)).filter(|n| *n > 0),
            noncurrent_days: Some(signed(n)),
        }),
        noncurrent_version_transitions: Some(older_moves.collect()).filter(|m: &Vec<_>| !m.is_empty()),
        prefix: rule.prefix.clone().filter(|_| rule.bare),
        status: ExpirationStatus::from_static(status),
        transitions: Some(moves.collect()).filter(|m: &Vec<_>| !m.is_empty()),
    }
}

/// What is not moved because it is small; None: no rule moves anything.
fn said_least(rules: &[Rule]) -> Option<TransitionDefaultMinimumObjectSize> {
    let mut moving = rules
        .iter()
        .filter(|r| !r.moves.is_empty() || !r.older_moves.is_empty())
        .peekable();
    moving.peek()?;
    let least = match moving.any(|r| r.large_alone) {
        true => TransitionDefaultMinimumObjectSize::ALL_STORAGE_CLASSES_128K,
        false => TransitionDefaultMinimumObjectSize::VARIES_BY_STORAGE_CLASS,
    };
    Some(TransitionDefaultMinimumObjectSize::from_static(least))
}

impl<P: Pool> Front<P> {
    /// `x-amz-expiration` of an object; None: it stays, or beyond the year 9999.
    pub(super) fn expiration(&self, known: &Known, key: &str, entry: &Entry) -> Option<String> {
        let end = expires(&known.settings.of.lifecycle, key, entry, self.day);
        let (at, rule) = end.filter(|(at, _)| *at < DATES_END)?;
        let id = Names::url().write(&rule.id);
        let date = http_date(&timestamp(at))?;
        Some(format!("expiry-date=\"{date}\", rule-id=\"{id}\""))
    }

    /// All classes that rules name have to be there.
    async fn check_moves(&self, rules: &[Rule]) -> S3Result<()> {
        let classes = rules.iter().flat_map(|r| r.moves.iter().map(|m| &m.class));
        let older = rules.iter().flat_map(|r| r.older_moves.iter().map(|m| &m.class));
        let all: BTreeSet<&String> = classes.chain(older).collect();
        for class in all {
            if self.objects.data.classes().open_to(class).await?.is_none() {
                return Err(no_class(class));
            }
        }
        Ok(())
    }

    pub async fn set_lifecycle(
        &self,
        mut req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<PutBucketLifecycleConfigurationOutput> {
        let least = req.input.transition_default_minimum_object_size.take();
        let large_alone = match least.as_ref().map(|l| l.as_str()) {
            None | Some(TransitionDefaultMinimumObjectSize::VARIES_BY_STORAGE_CLASS) => false,
            Some(TransitionDefaultMinimumObjectSize::ALL_STORAGE_CLASSES_128K) => true,
            Some(_) => return Err(invalid("a smallest size of transitions that is not known here")),
        };
        let given = req.input.lifecycle_configuration.take();
        let bucket = req.input.bucket.clone();
        let ask = Ask::bucket(Action::PutLifecycleConfiguration, &bucket);
        self.permitted(&req, &ask).await?;
        raw::check_request(&req, &LEAVES)?;
        let given = given.ok_or_else(|| malformed("no LifecycleConfiguration"))?;
        let mut rules = rules(given.rules, || self.clock.tag().to_string())?;
        for rule in &mut rules {
            let sized = rule.larger.is_some() || rule.smaller.is_some();
            let moves = !rule.moves.is_empty() || !rule.older_moves.is_empty();
            rule.large_alone = large_alone && moves && !sized;
        }
        self.check_moves(&rules).await?;
        self.change_settings(&req, ask, |s| s.lifecycle.clone_from(&rules))
            .await?;
        Ok(PutBucketLifecycleConfigurationOutput {
            transition_default_minimum_object_size: least,
        })
    }

    pub async fn remove_lifecycle(&self, req: S3Request<DeleteBucketLifecycleInput>) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutLifecycleConfiguration, &req.input.bucket);
        self.change_settings(&req, ask, |s| s.lifecycle.clear()).await
    }

    pub async fn lifecycle(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<GetBucketLifecycleConfigurationOutput> {
        let ask = Ask::bucket(Action::GetLifecycleConfiguration, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let rules = &known.settings.of.lifecycle;
        if rules.is_empty() {
            return Err(S3Error::with_message(
                S3ErrorCode::NoSuchLifecycleConfiguration,
                "The lifecycle configuration does not exist",
            ));
        }
        Ok(GetBucketLifecycleConfigurationOutput {
            rules: Some(rules.iter().map(said).collect()),
            transition_default_minimum_object_size: said_least(rules),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(days: i32, of: LifecycleRuleFilter) -> LifecycleRule {
        LifecycleRule {
            expiration: Some(LifecycleExpiration {
                days: Some(days),
                ..LifecycleExpiration::default()
            }),
            filter: Some(of),
            ..said(&Rule {
                bare: true,
                enabled: true,
                ..Rule::default()
            })
        }
    }

    fn prefix(text: &str) -> LifecycleRuleFilter {
        LifecycleRuleFilter {
            prefix: Some(text.into()),
            ..LifecycleRuleFilter::default()
        }
    }

    fn refused(change: impl FnOnce(&mut LifecycleRule)) -> String {
        let mut of = given(1, prefix("p"));
        change(&mut of);
        let e = rule(of, || "x".into()).unwrap_err();
        e.code().as_str().to_string()
    }

    #[test]
    fn rules_come_back_as_they_were_put() {
        let tag = |n: u8| Tag {
            key: Some(format!("k{n}")),
            value: Some("v".into()),
        };
        let and = LifecycleRuleFilter {
            and: Some(LifecycleRuleAndOperator {
                object_size_greater_than: Some(0),
                object_size_less_than: Some(9),
                prefix: Some("p".into()),
                tags: Some(vec![tag(1), tag(2)]),
            }),
            ..LifecycleRuleFilter::default()
        };
        let one = LifecycleRuleFilter {
            tag: Some(tag(1)),
            ..LifecycleRuleFilter::default()
        };
        for of in [and, one, prefix(""), prefix("p"), LifecycleRuleFilter::default()] {
            let put = given(3, of);
            let made = rule(put.clone(), || "fresh".into()).unwrap();
            let mut got = said(&made);
            assert_eq!(got.id.take().as_deref(), Some("fresh"));
            assert_eq!(got.filter, put.filter);
            assert_eq!(got.expiration, put.expiration);
        }
    }

    #[test]
    fn dates_end_with_the_year_9999() {
        let at = |text: &str| date(&Timestamp::parse(TimestampFormat::DateTime, text).unwrap());
        assert!(at("9999-12-31T12:00:00-12:00").is_err());
        let last = at("9999-12-31T00:00:00Z").unwrap();
        let of = Rule {
            date: Some(last),
            ..Rule::default()
        };
        assert_eq!(said(&of).expiration.unwrap().date, Some(timestamp(last)));
        // One that is there already can be seen.
        let beyond = Rule {
            date: Some(DATES_END),
            ..Rule::default()
        };
        assert!(said(&beyond).expiration.is_some());
    }

    #[test]
    fn rules_for_versions_come_back_as_they_were_put() {
        let mut put = given(1, prefix("p"));
        put.expiration = Some(LifecycleExpiration {
            expired_object_delete_marker: Some(true),
            ..LifecycleExpiration::default()
        });
        put.id = Some("i".into());
        for keep in [None, Some(100)] {
            put.noncurrent_version_expiration = Some(NoncurrentVersionExpiration {
                newer_noncurrent_versions: keep,
                noncurrent_days: Some(7),
            });
            let made = rule(put.clone(), String::new).unwrap();
            assert_eq!(said(&made), put);
        }
    }

    #[test]
    fn transitions_come_back_as_they_were_put() {
        let mut put = given(9, prefix("p"));
        put.id = Some("i".into());
        let to = |days, class: &str| Transition {
            date: None,
            days: Some(days),
            storage_class: Some(class.to_string().into()),
        };
        put.transitions = Some(vec![to(0, "COLD"), to(8, "ICE")]);
        put.noncurrent_version_transitions = Some(vec![NoncurrentVersionTransition {
            newer_noncurrent_versions: Some(3),
            noncurrent_days: Some(1),
            storage_class: Some("COLD".to_string().into()),
        }]);
        let mut made = rule(put.clone(), String::new).unwrap();
        assert_eq!(said(&made), put);
        put.expiration = None;
        assert!(rule(put, String::new).is_ok());
        let least = |rules: &[Rule]| said_least(rules).map(|l| l.as_str().to_string());
        assert_eq!(least(&[Rule::default()]), None);
        assert_eq!(least(&[made.clone()]).as_deref(), Some("varies_by_storage_class"));
        made.large_alone = true;
        assert_eq!(least(&[made]).as_deref(), Some("all_storage_classes_128K"));
    }

    #[test]
    fn what_is_not_known_or_does_not_fit_is_refused() {
        let to = |days, date, class: &str| Transition {
            date,
            days,
            storage_class: Some(class.to_string().into()).filter(|_| !class.is_empty()),
        };
        let midnight = |n| Some(timestamp(n * DAY));
        for (expiration, moves, code) in [
            (Some(2), vec![Transition::default()], "MalformedXML"),
            (None, vec![to(Some(1), None, "")], "MalformedXML"),
            (None, vec![to(Some(1), None, "STANDARD")], "MalformedXML"),
            (None, vec![to(Some(1), midnight(1), "COLD")], "MalformedXML"),
            (None, vec![to(Some(-1), None, "COLD")], "InvalidArgument"),
            (
                None,
                vec![to(None, Some(timestamp(DAY + 1)), "COLD")],
                "InvalidArgument",
            ),
            (Some(2), vec![to(Some(2), None, "COLD")], "InvalidArgument"),
            (Some(2), vec![to(None, midnight(1), "COLD")], "InvalidRequest"),
            (
                None,
                vec![to(Some(1), None, "COLD"), to(Some(2), None, "COLD")],
                "InvalidRequest",
            ),
            (
                None,
                vec![to(Some(1), None, "COLD"), to(None, midnight(1), "ICE")],
                "InvalidRequest",
            ),
        ] {
            let found = refused(|r| {
                r.expiration = expiration.map(|days| LifecycleExpiration {
                    days: Some(days),
                    ..LifecycleExpiration::default()
                });
                r.transitions = Some(moves);
            });
            assert_eq!(found, code);
        }
        let older = |days, keep| NoncurrentVersionExpiration {
            newer_noncurrent_versions: keep,
            noncurrent_days: days,
        };
        for (days, keep, code) in [
            (None, None, "MalformedXML"),
            (None, Some(1), "MalformedXML"),
            (Some(0), None, "InvalidArgument"),
            (Some(1), Some(0), "InvalidArgument"),
            (Some(1), Some(101), "InvalidArgument"),
        ] {
            assert_eq!(
                refused(|r| r.noncurrent_version_expiration = Some(older(days, keep))),
                code
            );
        }
        let to = |days, keep, class: &str| NoncurrentVersionTransition {
            newer_noncurrent_versions: keep,
            noncurrent_days: days,
            storage_class: Some(class.to_string().into()),
        };
        for (moves, code) in [
            (vec![to(None, None, "COLD")], "MalformedXML"),
            (vec![to(Some(1), None, "STANDARD")], "MalformedXML"),
            (vec![to(Some(1), Some(0), "COLD")], "InvalidArgument"),
            (vec![to(Some(-1), None, "COLD")], "InvalidArgument"),
            (vec![to(Some(3), None, "COLD")], "InvalidArgument"),
            (
                vec![to(Some(1), None, "COLD"), to(Some(2), None, "COLD")],
                "InvalidRequest",
            ),
        ] {
            let found = refused(|r| {
                r.noncurrent_version_expiration = Some(older(Some(3), None));
                r.noncurrent_version_transitions = Some(moves);
            });
            assert_eq!(found, code);
        }
        let tagged = LifecycleRuleFilter {
            tag: Some(Tag {
                key: Some("k".into()),
                value: None,
            }),
            ..LifecycleRuleFilter::default()
        };
        assert_eq!(
            refused(|r| {
                r.filter = Some(tagged);
                r.expiration = Some(LifecycleExpiration {
                    expired_object_delete_marker: Some(true),
                    ..LifecycleExpiration::default()
                });
            }),
            "InvalidRequest"
        );
        let expiration = |days, date, marker| LifecycleExpiration {
            date,
            days,
            expired_object_delete_marker: marker,
        };
        let at = |ms| Some(timestamp(ms));
        for (days, date, marker, code) in [
            (Some(1), None, Some(true), "MalformedXML"),
            (None, None, Some(false), "MalformedXML"),
            (Some(0), None, None, "InvalidArgument"),
            (Some(-1), None, None, "InvalidArgument"),
            (None, at(DAY + 1), None, "InvalidArgument"),
            (Some(1), at(DAY), None, "MalformedXML"),
            (None, None, None, "MalformedXML"),
        ] {
            assert_eq!(
                refused(|r| r.expiration = Some(expiration(days, date, marker))),
                code
            );
        }
        assert_eq!(refused(|r| r.filter = None), "MalformedXML");
        assert_eq!(refused(|r| r.prefix = Some("p".into())), "MalformedXML");
        assert_eq!(refused(|r| r.expiration = None), "MalformedXML");
        assert_eq!(
            refused(|r| r.status = ExpirationStatus::from("enabled".to_string())),
            "MalformedXML"
        );
        assert_eq!(refused(|r| r.id = Some("x".repeat(256))), "InvalidArgument");
        let sized = LifecycleRuleFilter {
            object_size_less_than: Some(5),
            ..LifecycleRuleFilter::default()
        };
        let abort = AbortIncompleteMultipartUpload {
            days_after_initiation: Some(1),
        };
        assert_eq!(
            refused(|r| {
                r.filter = Some(sized);
                r.abort_incomplete_multipart_upload = Some(abort);
            }),
            "InvalidRequest"
        );
        let twice = vec![given(1, prefix("a")), given(1, prefix("b"))];
        assert!(rules(twice.clone(), || "same".into()).is_err());
        assert!(rules(Vec::new(), || "x".into()).is_err());
    }
}
