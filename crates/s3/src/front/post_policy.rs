//! What the owner of a key lets a form do: the policy document that is signed in its place.
//!
//! Every field has to be named by a condition, and the bucket, so that whoever has the form can add nothing; each condition has to hold.

use crate::policy::seconds;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;

/// Fields that no condition has to name.
const FREE: [&str; 5] = ["awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"];
const IGNORED: &str = "x-ignore-";
const CONDITIONS_MAX: usize = 200;

#[derive(Debug, PartialEq)]
enum Condition {
    Is(String, String),
    Starts(String, String),
}

#[derive(Debug)]
pub struct PostPolicy {
    /// Seconds since 1970.
    expires: f64,
    conditions: Vec<Condition>,
    /// The least and the most bytes that the file has.
    pub length: (u64, u64),
}

fn name_of(field: &str) -> String {
    field.trim_start_matches('$').to_ascii_lowercase()
}

fn text(value: &Value) -> Result<String, String> {
    let text = value.as_str().map(str::to_string);
    text.ok_or_else(|| "a condition has what is no text".into())
}

impl PostPolicy {
    /// Of the text of the field, in base64.
    pub fn parse(given: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(given.trim()).map_err(|_| "it is no base64")?;
        let document: Value = serde_json::from_slice(&bytes).map_err(|e| format!("it is no JSON: {e}"))?;
        let expires = document["expiration"].as_str().filter(|t| t.contains('T'));
        let expires = expires
            .and_then(seconds)
            .ok_or("it has no expiration, as in 2026-11-26T12:00:00Z")?;
        let mut policy = Self {
            expires,
            conditions: Vec::new(),
            length: (0, u64::MAX),
        };
        let all = document["conditions"].as_array().ok_or("it has no conditions")?;
        if all.len() > CONDITIONS_MAX {
            return Err(format!("it has more than {CONDITIONS_MAX} conditions"));
        }
        for condition in all {
            policy.add(condition)?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), String> {
        if let Some(object) = condition.as_object() {
            for (name, value) in object {
                self.conditions.push(Condition::Is(name_of(name), text(value)?));
            }
            return Ok(());
        }
        // Values are not told: they may be keys.
        let wrong = || match condition.get(1).and_then(Value::as_str) {
            Some(field) => format!("the condition on {field} is not known"),
            None => "a condition that is not known".into(),
        };
        let Some([what, first, second]) = condition.as_array().map(Vec::as_slice) else {
            return Err(wrong());
        };
        match text(what)?.to_ascii_lowercase().as_str() {
            "eq" => self
                .conditions
                .push(Condition::Is(name_of(&text(first)?), text(second)?)),
            "starts-with" => {
                let starts = Condition::Starts(name_of(&text(first)?), text(second)?);
                self.conditions.push(starts);
            }
            "content-length-range" => {
                let number = |v: &Value| v.as_u64().or_else(|| v.as_str()?.parse().ok()).ok_or_else(wrong);
                let (least, most) = (number(first)?, number(second)?);
                self.length = (self.length.0.max(least), self.length.1.min(most));
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Whether it lets this form be posted to that bucket now; else why not, in a sentence.
    pub fn check(&self, fields: &BTreeMap<String, String>, bucket: &str, now_ms: u64) -> Result<(), String> {
        if self.expires * 1000.0 <= now_ms as f64 {
            return Err("Invalid according to Policy: Policy expired.".into());
        }
        let value = |name: &str| match name {
            "bucket" => bucket,
            name => fields.get(name).map_or("", String::as_str),
        };
        for condition in &self.conditions {
            let (name, holds) = match condition {
                Condition::Is(name, wanted) => (name, value(name) == wanted),
                Condition::Starts(name, wanted) => (name, value(name).starts_with(wanted)),
            };
            // Values may be keys (SSE-C), which an answer does not repeat.
            if !holds {
                return Err(format!(
                    "Invalid according to Policy: Policy Condition failed: {name}"
                ));
            }
        }
        let named = |field: &str| {
            let of = |c: &Condition| matches!(c, Condition::Is(name, _) | Condition::Starts(name, _) if name == field);
            self.conditions.iter().any(of)
        };
        // Otherwise the form could be posted to each bucket that the signer may write to.
        if !named("bucket") {
            return Err("Invalid according to Policy: no condition names the bucket".into());
        }
        let mut extra = fields.keys().filter(|f| {
            let free = FREE.contains(&f.as_str()) || f.starts_with(IGNORED) || *f == "bucket";
            !free && !named(f)
        });
        match extra.next() {
            Some(field) => Err(format!(
                "Invalid according to Policy: Extra input fields: {field}"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(conditions: &str) -> Result<PostPolicy, String> {
        let text =
            format!("{{\"expiration\": \"1970-01-02T00:00:00.000Z\", \"conditions\": [{conditions}]}}");
        PostPolicy::parse(&STANDARD.encode(text))
    }

    fn fields(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn forms_are_held_against_it() {
        let p = policy("{\"bucket\": \"b\"}, [\"starts-with\", \"$Key\", \"u/\"], [\"eq\", \"$acl\", \"private\"], [\"content-length-range\", 3, \"10\"], [\"content-length-range\", 0, 7]").unwrap();
        assert_eq!(p.length, (3, 7));
        let good = [
            ("key", "u/a"),
            ("acl", "private"),
            ("policy", "x"),
            ("x-ignore-a", "y"),
            ("signature", "s"),
        ];
        assert_eq!(p.check(&fields(&good), "b", 1000), Ok(()));
        for (form, bucket, now) in [
            (&good[..], "c", 1000),
            (&good[..], "b", 86_400_000),
            (&[("key", "v/a"), ("acl", "private")][..], "b", 1000),
            (&[("key", "u/a"), ("acl", "public-read")][..], "b", 1000),
            (&[("key", "u/a")][..], "b", 1000),
            (
                &[("key", "u/a"), ("acl", "private"), ("x-amz-meta-a", "b")][..],
                "b",
                1000,
            ),
        ] {
            assert!(p.check(&fields(form), bucket, now).is_err(), "{form:?}");
        }
        let secret = policy("{\"bucket\": \"b\"}, {\"x-a\": \"c2VjcmV0\"}").unwrap();
        let said = secret.check(&fields(&[("x-a", "other")]), "b", 0).unwrap_err();
        assert!(said.ends_with("failed: x-a"), "{said}");
        let any = policy("[\"starts-with\", \"$key\", \"\"], [\"starts-with\", \"$bucket\", \"\"]").unwrap();
        assert!(any.check(&fields(&[("key", "x")]), "b", 0).is_ok());
        let nowhere = policy("[\"starts-with\", \"$key\", \"\"]").unwrap();
        for form in [&[("key", "x")][..], &[("key", "x"), ("bucket", "b")]] {
            let said = nowhere.check(&fields(form), "b", 0).unwrap_err();
            assert!(said.contains("bucket"), "{said}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for bad in [
            "1",
            "[]",
            "[\"eq\", \"a\"]",
            "[\"ends-with\", \"$key\", \"a\"]",
            "{\"acl\": 1}",
            "[\"content-length-range\", -1, 5]",
            "[\"content-length-range\", \"a\", 5]",
        ] {
            assert!(policy(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "!",
            "e30=",
            &STANDARD.encode("{\"expiration\": \"5\", \"conditions\": []}"),
        ] {
            assert!(PostPolicy::parse(bad).is_err(), "{bad}");
        }
        let many = vec!["{\"a\": \"b\"}"; CONDITIONS_MAX + 1].join(",");
        assert!(policy(&many).is_err());
    }

    proptest::proptest! {
        #[test]
        fn anything_is_judged(text in "\\PC{0,80}", conditions in "[\\[\\]{}\",:a-z0-9$-]{0,60}") {
            let _ = PostPolicy::parse(&text);
            let _ = PostPolicy::parse(&STANDARD.encode(&text));
            let _ = policy(&conditions);
        }
    }
}
