//! A policy's text, read strictly: what is not known, or is there twice, refuses the whole.

use super::actions::Action;
use super::condition::Condition;
use super::json::Strict;
use super::keys::Key;
use super::pattern::{Pattern, Reading, wild};
use super::statement::{ARN, Listed, Policy, Principals, Statement, TEXT_MAX, USER_ARN, of_role};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

type Object = Map<String, Value>;

/// What STS says of who takes a role: no other key ever has a value there.
const OF_TAKER: [Key; 7] = [
    Key::CurrentTime,
    Key::EpochTime,
    Key::PrincipalArn,
    Key::SecureTransport,
    Key::SourceIp,
    Key::UserAgent,
    Key::Username,
];

/// Whose policy it is.
#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Bucket(&'a str),
    /// What somebody may do, in all buckets.
    Rights,
    /// Who may take a role.
    Trust,
}

impl Of<'_> {
    /// What a statement may have.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Bucket(_) => &[
                "Sid",
                "Effect",
                "Principal",
                "NotPrincipal",
                "Action",
                "NotAction",
                "Resource",
                "NotResource",
                "Condition",
            ],
            Self::Rights => &[
                "Sid",
                "Effect",
                "Action",
                "NotAction",
                "Resource",
                "NotResource",
                "Condition",
            ],
            Self::Trust => &["Sid", "Effect", "Principal", "Action", "Condition"],
        }
    }
}

impl Policy {
    /// Refused with a sentence. `bucket`: whose it is.
    pub fn parse(text: &str, bucket: &str) -> Result<Self, String> {
        policy(text, Of::Bucket(bucket))
    }

    /// Of what a role, or one of its sessions, may do.
    pub fn of_rights(text: &str) -> Result<Self, String> {
        policy(text, Of::Rights)
    }

    /// Of who may take a role. Its statements fit whatever action is asked.
    pub fn of_trust(text: &str) -> Result<Self, String> {
        policy(text, Of::Trust)
    }
}

fn policy(text: &str, of: Of<'_>) -> Result<Policy, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("a policy has at most {TEXT_MAX} bytes"));
    }
    let Strict(value) = serde_json::from_str(text).map_err(|e| format!("this is no policy in JSON: {e}"))?;
    let Value::Object(top) = value else {
        return Err("a policy is a JSON object".into());
    };
    only(&top, "a policy", &["Version", "Id", "Statement"])?;
    let variables = match top.get("Version").map(Value::as_str) {
        Some(Some("2012-10-17")) => true,
        None | Some(Some("2008-10-17")) => false,
        Some(_) => return Err("a policy's Version is 2012-10-17 or 2008-10-17".into()),
    };
    text_or_none(&top, "Id")?;
    let statements = match top.get("Statement") {
        Some(Value::Array(all)) if !all.is_empty() => all.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => return Err("a policy has one Statement or more".into()),
    };
    let statements = statements.into_iter().map(|s| statement(s, of, variables));
    Ok(Policy {
        statements: statements.collect::<Result<_, _>>()?,
    })
}

fn only(object: &Object, what: &str, names: &[&str]) -> Result<(), String> {
    match object.keys().find(|k| !names.contains(&k.as_str())) {
        Some(other) => Err(format!("{what} has no \"{other}\"")),
        None => Ok(()),
    }
}

fn text_or_none(object: &Object, name: &str) -> Result<(), String> {
    match object.get(name) {
        None | Some(Value::String(_)) => Ok(()),
        Some(_) => Err(format!("\"{name}\" is a text")),
    }
}

/// A text, or a list of at least one.
fn texts(value: &Value, what: &str) -> Result<Vec<String>, String> {
    let one = |v: &Value| v.as_str().map(str::to_string);
    let all = match value {
        Value::Array(all) => all.iter().map(one).collect(),
        other => one(other).map(|t| vec![t]),
    };
    let all = all.filter(|all: &Vec<String>| !all.is_empty());
    all.ok_or_else(|| format!("{what}: a text or a list of texts is wanted"))
}

/// The one of an element and its negation that is there.
fn either<'a>(object: &'a Object, name: &str) -> Result<Listed<&'a Value>, String> {
    let not = format!("Not{name}");
    match (object.get(name), object.get(&not)) {
        (Some(of), None) => Ok(Listed { of, not: false }),
        (None, Some(of)) => Ok(Listed { of, not: true }),
        _ => Err(format!("a statement has one of {name} and {not}")),
    }
}

fn statement(value: &Value, of: Of<'_>, variables: bool) -> Result<Statement, String> {
    let Value::Object(object) = value else {
        return Err("a statement is a JSON object".into());
    };
    only(object, "a statement here", of.names())?;
    text_or_none(object, "Sid")?;
    let allows = match object.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        _ => return Err("a statement's Effect is Allow or Deny".into()),
    };
    let (actions, resources) = match of {
        Of::Bucket(bucket) => what(object, Some(bucket), variables)?,
        Of::Rights => what(object, None, variables)?,
        Of::Trust => assume_role(object)?,
    };
    Ok(Statement {
        allows,
        principals: principals(object, of, allows)?,
        actions,
        resources,
        conditions: object
            .get("Condition")
            .map_or(Ok(Vec::new()), |c| conditions(c, of, variables))?,
    })
}

fn principals(object: &Object, of: Of<'_>, allows: bool) -> Result<Listed<Principals>, String> {
    if matches!(of, Of::Rights) {
        return Ok(Listed {
            of: Principals::Everybody,
            not: false,
        });
    }
    let given = either(object, "Principal")?;
    if given.not && allows {
        return Err("NotPrincipal goes with Deny alone: it would let in everybody else".into());
    }
    Ok(Listed {
        of: principals_of(given.of, matches!(of, Of::Bucket(_)))?,
        not: given.not,
    })
}

type What = (Listed<BTreeSet<Action>>, Listed<Vec<Pattern>>);

/// Actions and resources. `bucket`: whose policy it is, if it is one's.
fn what(object: &Object, bucket: Option<&str>, variables: bool) -> Result<What, String> {
    let given = either(object, "Action")?;
    let action_texts = texts(given.of, "Action")?;
    let mut actions = BTreeSet::new();
    for text in &action_texts {
        actions.extend(Action::named(text).ok_or_else(|| format!("there is no action \"{text}\""))?);
    }
    let actions = Listed {
        of: actions,
        not: given.not,
    };
    let given = either(object, "Resource")?;
    let resource_texts = texts(given.of, "Resource")?;
    let resources = resource_texts.iter().map(|r| resource(r, bucket, variables));
    let resources = Listed {
        of: resources.collect::<Result<Vec<_>, _>>()?,
        not: given.not,
    };
    if let Some(bucket) = bucket.filter(|_| !actions.not && !resources.not) {
        meet(&action_texts, &resource_texts, bucket)?;
    }
    Ok((actions, resources))
}

/// Whatever is asked: the one action that there is was named.
fn assume_role(object: &Object) -> Result<What, String> {
    let given = object.get("Action").ok_or("a statement has an Action")?;
    for text in texts(given, "Action")? {
        if !wild(&text.to_ascii_lowercase(), "sts:assumerole") {
            return Err(format!("the action \"{text}\" is not sts:AssumeRole"));
        }
    }
    let (actions, resources) = (BTreeSet::new(), Vec::new());
    Ok((
        Listed {
            of: actions,
            not: true,
        },
        Listed {
            of: resources,
            not: true,
        },
    ))
}

/// `roles`: they, and their sessions, may be named.
fn principals_of(value: &Value, roles: bool) -> Result<Principals, String> {
    if value.as_str() == Some("*") {
        return Ok(Principals::Everybody);
    }
    let Value::Object(kinds) = value else {
        return Err("a Principal is \"*\" or an object with AWS or CanonicalUser".into());
    };
    only(kinds, "a Principal here", &["AWS", "CanonicalUser"])?;
    let mut users = BTreeSet::new();
    for (kind, named) in kinds {
        for name in texts(named, "Principal")? {
            let user = match kind.as_str() {
                "AWS" if name == "*" => return Ok(Principals::Everybody),
                "AWS" if roles && of_role(&name).is_some() => {
                    users.extend(of_role(&name));
                    continue;
                }
                "AWS" => name.strip_prefix(USER_ARN),
                _ => Some(name.as_str()),
            };
            let user = user.filter(|u| !u.is_empty() && !u.contains(['*', '?', '/', '$']));
            users.insert(
                user.ok_or_else(|| format!("the principal \"{name}\" is not \"*\" nor {USER_ARN}NAME"))?
                    .to_string(),
            );
        }
    }
    match users.is_empty() {
        true => Err("a Principal names somebody".into()),
        false => Ok(Principals::Users(users)),
    }
}

/// The bucket's part of a resource, and the rest with its slash.
fn parts(text: &str) -> Option<(&str, Option<&str>)> {
    let rest = if text == "*" {
        text
    } else {
        text.strip_prefix(ARN)?
    };
    Some(match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(&rest[slash..])),
        None => (rest, None),
    })
}

fn resource(text: &str, bucket: Option<&str>, variables: bool) -> Result<Pattern, String> {
    let of = parts(text).filter(|(of, _)| bucket.is_none_or(|bucket| wild(of, bucket)));
    if of.is_none() {
        return Err(match bucket {
            Some(bucket) => format!("the resource \"{text}\" is not {ARN}{bucket}, nor in it"),
            None => format!("the resource \"{text}\" is not \"*\" nor {ARN}BUCKET, nor in one"),
        });
    }
    Pattern::parse(
        text,
        Reading {
            wild: true,
            variables,
        },
    )
}

/// Each action shall have a resource that it can be done to.
fn meet(actions: &[String], resources: &[String], bucket: &str) -> Result<(), String> {
    let of: Vec<_> = resources.iter().filter_map(|r| parts(r)).collect();
    let objects = of.iter().any(|(b, rest)| rest.is_some() || b.ends_with('*'));
    let buckets = of.iter().any(|(b, rest)| rest.is_none() && wild(b, bucket));
    for text in actions {
        let mut all = Action::named(text).unwrap_or_default();
        // Never asked of a bucket that is there: they may stand in its policy, and mean nothing.
        all.retain(|a| !matches!(a, Action::CreateBucket | Action::ListAllMyBuckets));
        let fits = |a: &Action| if a.is_of_object() { objects } else { buckets };
        if !all.is_empty() && !all.iter().any(fits) {
            return Err(format!(
                "the action \"{text}\" does not apply to any resource of its statement"
            ));
        }
    }
    Ok(())
}

/// A Deny on what has no value would deny nothing, or everything.
fn check_key(key: &str, of: Of<'_>) -> Result<(), String> {
    let strange = |key: &Key| matches!(of, Of::Trust) && !OF_TAKER.contains(key);
    match Key::named(key).filter(strange) {
        Some(_) => Err(format!("the key \"{key}\" has no value where a role is taken")),
        None => Ok(()),
    }
}

fn conditions(value: &Value, of: Of<'_>, variables: bool) -> Result<Vec<Condition>, String> {
    let Value::Object(operators) = value else {
        return Err("a Condition is a JSON object".into());
    };
    let mut all = Vec::new();
    for (operator, keys) in operators {
        let Value::Object(keys) = keys else {
            return Err(format!("the operator \"{operator}\" has an object of keys"));
        };
        // Names of keys are the same in either case.
        let mut seen = BTreeSet::new();
        for (key, values) in keys {
            if !seen.insert(key.to_ascii_lowercase()) {
                return Err(format!("\"{key}\" is there twice"));
            }
            check_key(key, of)?;
            let one = |v: &Value| match v {
                Value::String(s) => Some(s.clone()),
                Value::Bool(_) | Value::Number(_) => Some(v.to_string()),
                _ => None,
            };
            let values = match values {
                Value::Array(all) => all.iter().map(one).collect(),
                other => one(other).map(|v| vec![v]),
            };
            let values = values.filter(|all: &Vec<String>| !all.is_empty());
            let values = values.ok_or_else(|| format!("the key \"{key}\" has a value or a list of them"))?;
            all.push(Condition::parse(operator, key, &values, variables)?);
        }
    }
    Ok(all)
}
