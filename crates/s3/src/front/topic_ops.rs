//! Topics, as clients of SNS make them: forms (`signed_form`) for the service `sns`.
//!
//! Not here: subscriptions. A topic has one endpoint, as with radosgw, which its attribute `push-endpoint` names.

use super::Front;
use super::caller::Noted;
use super::signed_form::{Done, refuse, wrong, xml};
use crate::endpoints::Endpoints;
use crate::notify::{topic_arn, topic_of};
use crate::rados::Pool;
use crate::topics::{Queue, Topic};
use std::collections::BTreeMap;

const NAME_MAX: usize = 256;
const OPAQUE_MAX: usize = 1024;
/// Attributes that say what is so in any case, and the values that do.
const SETTLED: [(&str, &[&str]); 4] = [
    ("persistent", &["true", "false", "1", "0"]),
    ("verify-ssl", &["true", "1"]),
    ("cloudevents", &["false", "0"]),
    ("use-ssl", &["false", "0"]),
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Create {
        name: String,
        attributes: BTreeMap<String, String>,
    },
    Set {
        arn: String,
        name: String,
        value: String,
    },
    Get(String),
    Delete(String),
    List,
}

impl Asked {
    fn operation(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CreateTopic",
            Self::Set { .. } => "SetTopicAttributes",
            Self::Get(_) => "GetTopicAttributes",
            Self::Delete(_) => "DeleteTopic",
            Self::List => "ListTopics",
        }
    }
}

/// Attributes by their numbers: `Attributes.entry.N.key` and `.value`.
fn entries(of: &mut BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let mut attributes = BTreeMap::new();
    let numbers: Vec<String> = of
        .keys()
        .filter_map(|name| name.strip_prefix("Attributes.entry.")?.strip_suffix(".key"))
        .map(str::to_string)
        .collect();
    for n in numbers {
        let mut part = |what: &str| of.remove(&format!("Attributes.entry.{n}.{what}"));
        let (name, value) = (part("key").unwrap_or_default(), part("value"));
        let value = value.ok_or_else(|| format!("the attribute {name} has no value"))?;
        if attributes.insert(name.clone(), value).is_some() {
            return Err(format!("the attribute {name} is there twice"));
        }
    }
    Ok(attributes)
}

/// Refused if it has what is not known: it would be less than its owner thinks.
fn asked(mut of: BTreeMap<String, String>) -> Done<Asked> {
    let action = of
        .remove("Action")
        .ok_or_else(|| refuse("MissingAction", "Action is missing"))?;
    of.remove("Version");
    let mut part = |name: &str| of.remove(name).ok_or_else(|| wrong(format!("{name} is missing")));
    let asked = match action.as_str() {
        "CreateTopic" => {
            let name = part("Name")?;
            let attributes = entries(&mut of).map_err(wrong)?;
            Asked::Create { name, attributes }
        }
        "SetTopicAttributes" => Asked::Set {
            arn: part("TopicArn")?,
            name: part("AttributeName")?,
            value: part("AttributeValue")?,
        },
        "GetTopicAttributes" => Asked::Get(part("TopicArn")?),
        "DeleteTopic" => Asked::Delete(part("TopicArn")?),
        "ListTopics" => {
            // All are in one answer.
            of.remove("NextToken");
            Asked::List
        }
        other => {
            return Err(refuse(
                "InvalidAction",
                format!("{other:?} is not built: topics are made, listed, shown, changed and removed here"),
            ));
        }
    };
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known for {action}"))),
        None => Ok(asked),
    }
}

fn check_name(name: &str) -> Done<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(good) {
        true => Ok(()),
        false => Err(wrong(format!(
            "a topic's name has 1 to {NAME_MAX} letters, digits and - _ ."
        ))),
    }
}

/// Endpoint and opaque data, with what attributes say in place of what was.
fn attributes(
    of: &BTreeMap<String, String>,
    (mut endpoint, mut opaque): (String, String),
    endpoints: &Endpoints,
) -> Done<(String, String)> {
    for (name, value) in of {
        let settled = SETTLED.iter().find(|(n, _)| n == name);
        match (name.as_str(), settled) {
            ("push-endpoint", _) => endpoint.clone_from(value),
            ("OpaqueData", _) if value.len() > OPAQUE_MAX => {
                return Err(wrong(format!("OpaqueData has at most {OPAQUE_MAX} bytes")));
            }
            ("OpaqueData", _) => opaque.clone_from(value),
            (_, Some((_, good))) if good.contains(&value.to_ascii_lowercase().as_str()) => {}
            (_, Some(_)) => return Err(refuse("NotImplemented", format!("{name}={value}: not built yet"))),
            _ => {
                return Err(wrong(format!(
                    "the attribute {name} is not known: push-endpoint and OpaqueData are"
                )));
            }
        }
    }
    if endpoint.is_empty() {
        return Err(wrong("a topic needs a push-endpoint, http:// or https://"));
    }
    endpoints.check(&endpoint).map_err(wrong)?;
    Ok((endpoint, opaque))
}

/// A URL without its user and password, and whether it has some.
fn hidden(url: &str) -> (String, bool) {
    let of_user = net::post::Url::parse(url).is_ok_and(|url| url.has_user());
    let parts = url.split_once("://").filter(|_| of_user);
    let parts = parts.and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some(format!("{scheme}://***{}", &rest[at..]))
    });
    (parts.unwrap_or_else(|| url.to_string()), of_user)
}

fn shown(topic: &Topic, queue: Queue) -> String {
    let arn = topic_arn(&topic.owner, &topic.name);
    let (address, secret) = hidden(&topic.endpoint);
    let endpoint = serde_json::json!({
        "EndpointAddress": address,
        "EndpointTopic": topic.name,
        "HasStoredSecret": secret,
        "Persistent": true,
    });
    let (endpoint, waiting) = (endpoint.to_string(), queue.rows.to_string());
    let dropped = (queue.full.to_string(), queue.old.to_string());
    let entries = [
        ("TopicArn", arn.as_str()),
        ("Owner", &topic.owner),
        ("User", &topic.owner),
        ("Name", &topic.name),
        ("EndPoint", &endpoint),
        ("push-endpoint", &address),
        ("persistent", "true"),
        ("OpaqueData", &topic.opaque),
        ("EventsWaiting", &waiting),
        ("EventsDroppedFull", &dropped.0),
        ("EventsDroppedOld", &dropped.1),
    ];
    let entry = |(name, value): (&str, &str)| {
        format!("<entry><key>{name}</key><value>{}</value></entry>", xml(value))
    };
    let entries: String = entries.into_iter().map(entry).collect();
    format!("<Attributes>{entries}</Attributes>")
}

impl<P: Pool> Front<P> {
    pub(super) async fn topics_asked(
        &self,
        user: &str,
        form: BTreeMap<String, String>,
        noted: &Noted,
    ) -> Done<(&'static str, String)> {
        let asked = asked(form)?;
        let operation = asked.operation();
        noted.lock().operation = Some(operation.into());
        Ok((operation, self.topics_answer(user, asked).await?))
    }

    /// A user's own topic.
    async fn own_topic(&self, user: &str, arn: &str) -> Done<Topic> {
        let there = match topic_of(arn).filter(|(owner, _)| *owner == user) {
            Some((owner, name)) => self.topics.get(owner, name).await?,
            None => None,
        };
        there.ok_or_else(|| refuse("NotFound", "Topic does not exist"))
    }

    async fn topics_answer(&self, user: &str, asked: Asked) -> Done<String> {
        Ok(match asked {
            Asked::Create { name, attributes: of } => {
                check_name(&name)?;
                let (endpoint, opaque) = attributes(&of, Default::default(), &self.endpoints)?;
                let made = self.topics.create(user, &name, &endpoint, &opaque).await?;
                format!("<TopicArn>{}</TopicArn>", topic_arn(&made.owner, &made.name))
            }
            Asked::Set { arn, name, value } => {
                let topic = self.own_topic(user, &arn).await?;
                let of = BTreeMap::from([(name, value)]);
                let was = (topic.endpoint, topic.opaque);
                let (endpoint, opaque) = attributes(&of, was, &self.endpoints)?;
                self.topics.create(user, &topic.name, &endpoint, &opaque).await?;
                String::new()
            }
            Asked::Get(arn) => {
                let topic = self.own_topic(user, &arn).await?;
                let queue = self.topics.queue(&topic.id).await?;
                shown(&topic, queue)
            }
            Asked::Delete(arn) => {
                // One that is not there is as good as removed.
                let (_, name) = topic_of(&arn)
                    .filter(|(owner, _)| *owner == user)
                    .ok_or_else(|| refuse("NotFound", "Topic does not exist"))?;
                self.topics.delete(user, name).await?;
                String::new()
            }
            Asked::List => {
                let member = |t: Topic| {
                    let arn = topic_arn(&t.owner, &t.name);
                    format!("<member><TopicArn>{arn}</TopicArn></member>")
                };
                let members: String = self.topics.of(user).await?.into_iter().map(member).collect();
                format!("<Topics>{members}</Topics>")
            }
        })
    }
}

/// For fuzzing: whether a form is taken.
#[cfg(feature = "testing")]
pub(super) fn takes(input: &[u8]) -> bool {
    let taken = super::signed_form::fields(input)
        .ok()
        .and_then(|of| asked(of).ok());
    match taken {
        Some(Asked::Create { name, attributes: of }) => {
            check_name(&name).is_ok() && attributes(&of, Default::default(), &Endpoints::default()).is_ok()
        }
        other => other.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::signed_form::{Service, fields, result};
    use super::*;

    fn form(text: &str) -> Done<Asked> {
        asked(fields(text.as_bytes()).map_err(wrong)?)
    }

    #[test]
    fn forms_are_read() {
        let Asked::Create { name, attributes } = form(
            "Action=CreateTopic&Version=2010-03-31&Name=t&Attributes.entry.1.key=push-endpoint&Attributes.entry.1.value=http%3A%2F%2Fh%2F&Attributes.entry.2.value=a+b&Attributes.entry.2.key=OpaqueData",
        )
        .unwrap() else {
            panic!("another");
        };
        assert_eq!(name, "t");
        assert_eq!(attributes["push-endpoint"], "http://h/");
        assert_eq!(attributes["OpaqueData"], "a b");
        assert_eq!(form("Action=ListTopics&Version=x").unwrap(), Asked::List);
        for (bad, code) in [
            ("", "MissingAction"),
            ("Action=Subscribe&TopicArn=a", "InvalidAction"),
            ("Action=CreateTopic", "InvalidParameter"),
            (
                "Action=CreateTopic&Name=t&Tags.member.1.Key=a",
                "InvalidParameter",
            ),
            ("Action=CreateTopic&Name=t&Name=u", "InvalidParameter"),
            (
                "Action=CreateTopic&Name=t&Attributes.entry.1.key=a",
                "InvalidParameter",
            ),
            ("Action=CreateTopic&Name=%", "InvalidParameter"),
            ("Action=DeleteTopic", "InvalidParameter"),
        ] {
            assert_eq!(form(bad).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn attributes_that_mean_something_else_are_refused() {
        let of = |pairs: &[(&str, &str)]| {
            let of = pairs
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect();
            attributes(&of, Default::default(), &Endpoints::default()).map_err(|e| e.code)
        };
        let endpoint = ("push-endpoint", "http://h/");
        let good = of(&[
            endpoint,
            ("persistent", "true"),
            ("verify-ssl", "True"),
            ("OpaqueData", "x"),
        ]);
        assert_eq!(good, Ok(("http://h/".into(), "x".into())));
        for (bad, code) in [
            (("verify-ssl", "false"), "NotImplemented"),
            (("cloudevents", "true"), "NotImplemented"),
            (("kafka-ack-level", "none"), "InvalidParameter"),
            (("push-endpoint", "amqp://h/"), "InvalidParameter"),
            (("push-endpoint", "http://127.0.0.1/"), "InvalidParameter"),
        ] {
            let first = if bad.0 == "push-endpoint" {
                ("OpaqueData", "x")
            } else {
                endpoint
            };
            assert_eq!(of(&[first, bad]).unwrap_err(), code, "{bad:?}");
        }
        assert_eq!(of(&[]).unwrap_err(), "InvalidParameter");
        assert!(check_name("a.B-_9").is_ok() && check_name("a:b").is_err() && check_name("").is_err());
    }

    #[test]
    fn answers_are_well_formed() {
        let topic = Topic {
            id: "i".into(),
            owner: "o".into(),
            name: "t".into(),
            endpoint: "http://h/?a&b".into(),
            opaque: "<\u{1}".into(),
            created: 0,
        };
        assert_eq!(hidden("http://h/a@b"), ("http://h/a@b".into(), false));
        assert_eq!(
            hidden("https://u:p@w@h:1/a@b"),
            ("https://***@h:1/a@b".into(), true)
        );
        let text = result(
            Service::Sns,
            "GetTopicAttributes",
            &shown(&topic, Queue::default()),
            "r",
        );
        assert!(text.contains("<value>http://h/?a&amp;b</value>") && text.contains("<value>&lt;</value>"));
        let leaves = [
            ("key", super::super::raw::Leaf::Text),
            ("value", super::super::raw::Leaf::Text),
            ("RequestId", super::super::raw::Leaf::Text),
        ];
        assert_eq!(super::super::raw::check(text.as_bytes(), &leaves), Ok(()));
    }
}
