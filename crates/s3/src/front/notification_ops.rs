//! Notifications of buckets: how they are set, and what events tell of a request.

use super::caller::Peer;
use super::errors::{coded, invalid, not_built};
use super::notification_filters::{Filters, with_filters};
use super::page::Document;
use super::permit::Ask;
use super::raw::{self, Leaf, Raw};
use super::texts::url_decoded;
use super::{Front, session, who};
use crate::buckets::Known;
use crate::notify::{Asker, How, NOTIFICATIONS_MAX, Notice, Notification, is_event, topic_arn, topic_of};
use crate::objects::Objects;
use crate::policy::Action;
use crate::rados::Pool;
use hyper::Uri;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use std::collections::{BTreeMap, BTreeSet};

const ID_MAX: usize = 255;
pub(super) const FILTER_MAX: usize = 1024;
const EVENTS_MAX: usize = 20;
/// Of all notifications of a bucket together: they are read with each change of settings.
const BYTES_MAX: usize = 64 << 10;
const QUERY: &str = "notification";
const LEAVES: [(&str, Leaf); 7] = [
    ("Queue", Leaf::Text),
    ("CloudFunction", Leaf::Text),
    ("Id", Leaf::Text),
    ("Topic", Leaf::Text),
    ("Event", Leaf::Text),
    ("Name", Leaf::Text),
    ("Value", Leaf::Text),
];
/// What the library reads; it passes over others at the outside.
const NAMES: [&str; 15] = [
    "NotificationConfiguration",
    "TopicConfiguration",
    "QueueConfiguration",
    "CloudFunctionConfiguration",
    "EventBridgeConfiguration",
    "Filter",
    "S3Key",
    "FilterRule",
    "Id",
    "Topic",
    "Event",
    "Name",
    "Value",
    "Queue",
    "CloudFunction",
];
/// What is read here in its place (`notification_filters`).
const OURS: [&str; 2] = ["S3Metadata", "S3Tags"];
/// What others tell of.
const UNBUILT: [&str; 8] = [
    "s3:IntelligentTiering",
    "s3:LifecycleTransition",
    "s3:ObjectAcl:",
    "s3:ObjectLifecycle:",
    "s3:ObjectRestore:",
    "s3:ObjectSynced:",
    "s3:ReducedRedundancyLostObject",
    "s3:Replication:",
];

pub(super) fn malformed(what: impl Into<String>) -> S3Error {
    coded(S3ErrorCode::MalformedXML, what)
}

/// Refused where it would not be taken as it was written. Where filters of ours are is not looked at.
pub(super) fn check(xml: &[u8]) -> Result<(), String> {
    raw::check(xml, &LEAVES)?;
    raw::check_names(xml, &[&NAMES[..], &OURS[..]].concat())
}

/// Refused where the library would not take it as it was written: filters of ours below the root, too, which it passes over.
pub(super) fn check_read(xml: &[u8]) -> Result<(), String> {
    raw::check(xml, &LEAVES)?;
    raw::check_names(xml, &NAMES)
}

/// The id that a query names: empty where it names none. None: it is not about notifications.
pub(super) fn said_id(uri: &Uri) -> Option<String> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut named = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (url_decoded(name)? == QUERY).then(|| url_decoded(value).unwrap_or_default())
    });
    named.next()
}

fn event(given: &str) -> S3Result<String> {
    if is_event(given) {
        return Ok(given.to_string());
    }
    match UNBUILT.iter().any(|kind| given.starts_with(kind)) {
        true => Err(not_built(&format!("notifications of {given}"))),
        false => Err(invalid(format!("{given:?} is no event that is told of"))),
    }
}

/// Prefix and suffix.
fn filter(given: Option<NotificationConfigurationFilter>) -> S3Result<(String, String)> {
    let (mut prefix, mut suffix) = (None, None);
    let rules = given.and_then(|f| f.key).and_then(|k| k.filter_rules);
    for rule in rules.unwrap_or_default() {
        let name = rule.name.map(|n| n.as_str().to_ascii_lowercase());
        let slot = match name.as_deref() {
            Some("prefix") => &mut prefix,
            Some("suffix") => &mut suffix,
            _ => return Err(invalid("filter rule name must be either prefix or suffix")),
        };
        let value = rule.value.unwrap_or_default();
        if value.len() > FILTER_MAX {
            return Err(invalid(format!("a filter rule has at most {FILTER_MAX} bytes")));
        }
        if slot.replace(value).is_some() {
            return Err(invalid("a filter has one rule for prefix, and one for suffix"));
        }
    }
    Ok((prefix.unwrap_or_default(), suffix.unwrap_or_default()))
}

/// `new_id`: of one that has none.
fn notification(
    given: TopicConfiguration,
    filters: Filters,
    (owner, new_id): (&str, String),
) -> S3Result<Notification> {
    let topic = topic_of(&given.topic_arn).filter(|(of, _)| *of == owner);
    let (_, topic) = topic.ok_or_else(|| no_topic(&given.topic_arn))?;
    if given.events.is_empty() || given.events.len() > EVENTS_MAX {
        return Err(invalid(format!(
            "a notification is about 1 to {EVENTS_MAX} events"
        )));
    }
    let id = given.id.filter(|id| !id.is_empty()).unwrap_or(new_id);
    if id.len() > ID_MAX {
        return Err(invalid(format!("an Id has at most {ID_MAX} bytes")));
    }
    let events = given.events.iter().map(|e| event(e.as_ref()));
    let events = events.collect::<S3Result<_>>()?;
    let (prefix, suffix) = filter(given.filter)?;
    Ok(Notification {
        id,
        topic: topic.to_string(),
        events,
        prefix,
        suffix,
        meta: filters.meta,
        tags: filters.tags,
    })
}

/// Ids of two that would tell a topic of the same change.
fn overlapping(all: &[Notification]) -> Option<(&str, &str)> {
    let begins = |a: &str, b: &str| a.starts_with(b) || b.starts_with(a);
    let ends = |a: &str, b: &str| a.ends_with(b) || b.ends_with(a);
    let same = |a: &String, b: &String| {
        let (one, other) = (a.trim_end_matches('*'), b.trim_end_matches('*'));
        a == b || (a != one && other.starts_with(one)) || (b != other && one.starts_with(other))
    };
    // One object has one value of a name.
    let apart = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
        a.iter().any(|(n, v)| b.get(n).is_some_and(|other| other != v))
    };
    let both = |a: &Notification, b: &Notification| {
        a.topic == b.topic
            && !apart(&a.meta, &b.meta)
            && !apart(&a.tags, &b.tags)
            && begins(&a.prefix, &b.prefix)
            && ends(&a.suffix, &b.suffix)
            && a.events.iter().any(|x| b.events.iter().any(|y| same(x, y)))
    };
    let pairs = all
        .iter()
        .enumerate()
        .flat_map(|(n, a)| all[n + 1..].iter().map(move |b| (a, b)));
    let mut pairs = pairs.filter(|(a, b)| both(a, b));
    pairs.next().map(|(a, b)| (a.id.as_str(), b.id.as_str()))
}

fn no_topic(arn: &str) -> S3Error {
    invalid(format!(
        "Unable to validate the following destination configurations: {arn} is no topic of the bucket's owner"
    ))
}

fn said(owner: &str, of: &Notification) -> TopicConfiguration {
    let rule = |name: &'static str, value: &String| FilterRule {
        name: Some(FilterRuleName::from_static(name)),
        value: Some(value.clone()),
    };
    let rules = [("prefix", &of.prefix), ("suffix", &of.suffix)];
    let rules: Vec<FilterRule> = rules
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| rule(name, value))
        .collect();
    TopicConfiguration {
        events: of.events.iter().cloned().map(Event::from).collect(),
        filter: (!rules.is_empty()).then_some(NotificationConfigurationFilter {
            key: Some(S3KeyFilter {
                filter_rules: Some(rules),
            }),
        }),
        id: Some(of.id.clone()),
        topic_arn: topic_arn(owner, &of.topic),
    }
}

impl<P: Pool> Front<P> {
    /// As events tell it.
    pub(super) fn asker<T>(&self, req: &S3Request<T>) -> Asker {
        let peer = req.extensions.get::<Peer>();
        let user = session(req).map(|s| s.principal.as_str()).or_else(|| who(req));
        Asker {
            user: user.unwrap_or_default().to_string(),
            ip: peer.map(|p| p.ip.to_string()).unwrap_or_default(),
            request: format!("{:016x}", self.clock.random_u64()),
        }
    }

    /// Objects, for a change of one key, which is told of if somebody wants to know.
    pub(super) fn telling(
        &self,
        known: &Known,
        (bucket, key): (&str, &str),
        how: How,
        by: &Asker,
    ) -> Objects<P> {
        let rules = &known.settings.of.notifications;
        let of = (bucket, known.bucket.owner.as_str(), key);
        self.objects.telling(Notice::of(rules, of, how, by))
    }

    pub async fn set_notifications(
        &self,
        mut req: S3Request<PutBucketNotificationConfigurationInput>,
    ) -> S3Result<()> {
        let given = std::mem::take(&mut req.input.notification_configuration);
        let bucket = req.input.bucket.clone();
        let text = req.extensions.get::<Raw>().map(Raw::take).unwrap_or_default();
        check_read(&text).map_err(malformed)?;
        self.set_given(&req, &bucket, (given, Vec::new())).await
    }

    /// `filters`: of the topics, in their order, where they have some that the library does not read.
    pub(super) async fn set_given<T>(
        &self,
        req: &S3Request<T>,
        bucket: &str,
        (given, filters): (NotificationConfiguration, Vec<Filters>),
    ) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutBucketNotification, bucket);
        let owner = self.permitted(req, &ask).await?.bucket.owner;
        let of = self.judged(given, filters, &owner)?;
        let wanted: BTreeSet<&str> = of.iter().map(|n| n.topic.as_str()).collect();
        let there = self.topics.named(&owner, wanted.iter().copied()).await?;
        let there: BTreeSet<&str> = there.iter().map(|t| t.name.as_str()).collect();
        if let Some(missing) = wanted.difference(&there).next() {
            return Err(no_topic(&topic_arn(&owner, missing)));
        }
        self.change_settings(req, ask, |s| s.notifications.clone_from(&of))
            .await
    }

    /// What is to be set, if it is good; whether the topics are there is not looked at.
    fn judged(
        &self,
        given: NotificationConfiguration,
        filters: Vec<Filters>,
        owner: &str,
    ) -> S3Result<Vec<Notification>> {
        let is_some = |list: Option<usize>| list.is_some_and(|n| n > 0);
        if is_some(given.queue_configurations.map(|l| l.len()))
            || is_some(given.lambda_function_configurations.map(|l| l.len()))
            || given.event_bridge_configuration.is_some()
        {
            return Err(not_built("notifications to others than topics"));
        }
        let given = given.topic_configurations.unwrap_or_default();
        if given.len() > NOTIFICATIONS_MAX {
            return Err(invalid(format!(
                "a bucket has at most {NOTIFICATIONS_MAX} notifications"
            )));
        }
        let mut filters = filters.into_iter();
        let of = given.into_iter().map(|topic| {
            let new_id = format!("{:016x}", self.clock.random_u64());
            let filters = filters.next().unwrap_or_default();
            notification(topic, filters, (owner, new_id))
        });
        let of = of.collect::<S3Result<Vec<Notification>>>()?;
        if let Some((a, b)) = overlapping(&of) {
            return Err(invalid(format!(
                "Configurations overlap: {a:?} and {b:?} tell the same topic of the same"
            )));
        }
        let ids: BTreeSet<&str> = of.iter().map(|n| n.id.as_str()).collect();
        if ids.len() != of.len() {
            return Err(invalid("two notifications have the same Id"));
        }
        if denc::Encode::to_bytes(&of).len() > BYTES_MAX {
            return Err(invalid(
                "the notifications of a bucket have at most 64 KiB together",
            ));
        }
        Ok(of)
    }

    pub(super) async fn notifications(
        &self,
        req: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<(GetBucketNotificationConfigurationOutput, Option<Document>)> {
        let ask = Ask::bucket(Action::GetBucketNotification, &req.input.bucket);
        let known = self.permitted(&req, &ask).await?;
        let asked = said_id(&req.uri).filter(|id| !id.is_empty());
        let of = known.settings.of.notifications.iter();
        let of = of.filter(|n| asked.as_ref().is_none_or(|id| n.id == *id));
        let (of, owner) = (of.cloned().collect::<Vec<_>>(), known.bucket.owner.as_str());
        let topics: Vec<_> = of.iter().map(|n| said(owner, n)).collect();
        let output = GetBucketNotificationConfigurationOutput {
            topic_configurations: Some(topics).filter(|of| !of.is_empty()),
            ..GetBucketNotificationConfigurationOutput::default()
        };
        Ok((output, with_filters(owner, &of)))
    }

    /// One, or all: radosgw's way.
    pub async fn remove_notifications(&self, req: S3Request<DeleteBucketInput>, id: &str) -> S3Result<()> {
        let ask = Ask::bucket(Action::PutBucketNotification, &req.input.bucket);
        self.change_settings(&req, ask, |s| {
            s.notifications.retain(|n| !id.is_empty() && n.id != id)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arn: &str, events: &[&str], rules: &[(&'static str, &str)]) -> TopicConfiguration {
        let rule = |(name, value): &(&'static str, &str)| FilterRule {
            name: Some(FilterRuleName::from_static(name)),
            value: Some(value.to_string()),
        };
        TopicConfiguration {
            events: events.iter().map(|e| Event::from(e.to_string())).collect(),
            filter: Some(NotificationConfigurationFilter {
                key: Some(S3KeyFilter {
                    filter_rules: Some(rules.iter().map(rule).collect()),
                }),
            }),
            id: None,
            topic_arn: arn.to_string(),
        }
    }

    #[test]
    fn notifications_are_taken_or_refused() {
        let arn = topic_arn("o", "t");
        let code = |given| {
            let taken = notification(given, Filters::default(), ("o", "new".into()));
            taken.map_err(|e| e.code().as_str().to_string())
        };
        let put = ["s3:ObjectCreated:Put"];
        let taken = code(given(&arn, &put, &[("Prefix", "a/"), ("suffix", ".b")])).unwrap();
        assert_eq!((taken.id.as_str(), taken.topic.as_str()), ("new", "t"));
        assert_eq!((taken.prefix.as_str(), taken.suffix.as_str()), ("a/", ".b"));
        assert_eq!(
            said("o", &taken).filter,
            given(&arn, &put, &[("prefix", "a/"), ("suffix", ".b")]).filter
        );
        for (bad, want) in [
            (given(&topic_arn("other", "t"), &put, &[]), "InvalidArgument"),
            (given("arn:aws:sqs:r:o:t", &put, &[]), "InvalidArgument"),
            (given(&arn, &[], &[]), "InvalidArgument"),
            (given(&arn, &["s3:ObjectRestore:*"], &[]), "NotImplemented"),
            (given(&arn, &["s3:Nothing"], &[]), "InvalidArgument"),
            (
                given(&arn, &put, &[("prefix", "a"), ("prefix", "b")]),
                "InvalidArgument",
            ),
            (given(&arn, &put, &[("regex", "a")]), "InvalidArgument"),
        ] {
            assert_eq!(code(bad).unwrap_err(), want);
        }
    }

    #[test]
    fn one_topic_is_not_told_twice_of_a_change() {
        let of = |topic: &str, event: &str, prefix: &str, suffix: &str| Notification {
            id: prefix.into(),
            topic: topic.into(),
            events: vec![event.into()],
            prefix: prefix.into(),
            suffix: suffix.into(),
            ..Notification::default()
        };
        let first = of("t", "s3:ObjectCreated:*", "a/", ".x");
        for (other, overlaps) in [
            (of("t", "s3:ObjectCreated:Put", "a/b", "1.x"), true),
            (of("t", "s3:ObjectCreated:*", "", ""), true),
            (of("u", "s3:ObjectCreated:*", "a/", ".x"), false),
            (of("t", "s3:ObjectRemoved:*", "a/", ".x"), false),
            (of("t", "s3:ObjectCreated:*", "b/", ".x"), false),
            (of("t", "s3:ObjectCreated:*", "a/", ".y"), false),
        ] {
            let both = [first.clone(), other];
            assert_eq!(overlapping(&both).is_some(), overlaps, "{both:?}");
        }
        let tagged = |name: &str, value: &str| Notification {
            tags: BTreeMap::from([(name.to_string(), value.to_string())]),
            ..first.clone()
        };
        for (a, b, overlaps) in [
            (first.clone(), tagged("k", "1"), true),
            (tagged("k", "1"), tagged("l", "1"), true),
            (tagged("k", "1"), tagged("k", "2"), false),
        ] {
            let both = [a, b];
            assert_eq!(overlapping(&both).is_some(), overlaps, "{both:?}");
        }
    }

    #[test]
    fn texts_are_taken_as_they_were_written() {
        let of = |inner: &str| {
            check(
                format!("<NotificationConfiguration xmlns=\"x\">{inner}</NotificationConfiguration>")
                    .as_bytes(),
            )
        };
        assert!(check(b"<NotificationConfiguration/>").is_ok());
        assert!(
            of("<TopicConfiguration><Id>a</Id><Topic>t</Topic><Event>e</Event></TopicConfiguration>").is_ok()
        );
        assert!(of("<TopicConfiguration><Filter><S3Key><FilterRule><Name>prefix</Name><Value>a</Value></FilterRule></S3Key></Filter></TopicConfiguration>").is_ok());
        for bad in [
            "<TopicConfig><Id>a</Id></TopicConfig>",
            "<TopicConfiguration>x</TopicConfiguration>",
            "<TopicConfiguration><Id><![CDATA[a]]></Id></TopicConfiguration>",
            "<Filter><S3Other><FilterRule/></S3Other></Filter>",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        // What the library would pass over: its notifications would be about all objects.
        let astray = b"<NotificationConfiguration><TopicConfiguration><Topic>t</Topic></TopicConfiguration><S3Tags/></NotificationConfiguration>";
        assert!(check(astray).is_ok() && check_read(astray).is_err());
    }

    #[test]
    fn the_query_names_one() {
        let id = |uri: &str| said_id(&uri.parse().unwrap());
        assert_eq!(id("/b?notification"), Some(String::new()));
        assert_eq!(id("/b?x&notific%61tion=a%20b"), Some("a b".into()));
        assert_eq!(id("/b?notifications=1"), None);
        assert_eq!(id("/b"), None);
    }
}
