//! IAM: users and their keys, for who has the capability for it (`users=*`, `caps`). It is that of an administrator: a key of another user's does what that user may.
//!
//! A secret is in the answer that makes its key, and in no other. Not here: policies of users, groups, passwords.

use super::Front;
use super::caller::Noted;
use super::signed_form::{Done, Refusal, refuse, xml};
use super::sts_ops::iso;
use crate::accounts::{Key, User};
use crate::policy::user_arn;
use crate::rados::Pool;
use crate::roles::check_part;
use crate::{Error, keystone};
use std::collections::BTreeMap;

/// Users of one answer.
const PAGE: usize = 100;
const NAME_MAX: usize = 64;

/// What is built, and whether it changes something.
const ACTIONS: [(&str, bool); 8] = [
    ("CreateAccessKey", true),
    ("CreateUser", true),
    ("DeleteAccessKey", true),
    ("DeleteUser", true),
    ("GetUser", false),
    ("ListAccessKeys", false),
    ("ListUsers", false),
    ("UpdateAccessKey", true),
];

#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    operation: &'static str,
    writes: bool,
    /// None: who asks.
    user: Option<String>,
    access: String,
    active: bool,
    after: String,
    max: usize,
}

fn wrong(why: impl Into<String>) -> Refusal {
    refuse("ValidationError", why)
}

/// Whether a form is about users or their keys.
pub(super) fn is_one(form: &BTreeMap<String, String>) -> bool {
    let action = form.get("Action").map(String::as_str);
    ACTIONS.iter().any(|(name, _)| Some(*name) == action)
}

/// Refused if it has what is not known: it would be less than its user thinks.
fn asked(mut of: BTreeMap<String, String>) -> Done<Asked> {
    let action = of.remove("Action").unwrap_or_default();
    of.remove("Version");
    let known = ACTIONS.iter().find(|(name, _)| *name == action);
    let (operation, writes) =
        *known.ok_or_else(|| refuse("NotImplemented", format!("{action:?} is not built")))?;
    let mut asked = Asked {
        operation,
        writes,
        max: PAGE,
        ..Asked::default()
    };
    if operation != "ListUsers" {
        asked.user = of.remove("UserName");
    }
    if ["CreateUser", "DeleteUser"].contains(&operation) && asked.user.is_none() {
        return Err(wrong("UserName is missing"));
    }
    more(&mut asked, &mut of)?;
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known here for {action}"))),
        None => Ok(asked),
    }
}

/// What is said beside the user.
fn more(asked: &mut Asked, of: &mut BTreeMap<String, String>) -> Done<()> {
    let missing = |name: &'static str| move || wrong(format!("{name} is missing"));
    match asked.operation {
        "DeleteAccessKey" | "UpdateAccessKey" => {
            asked.access = of.remove("AccessKeyId").ok_or_else(missing("AccessKeyId"))?;
        }
        // All users are at the root.
        "CreateUser" if of.get("Path").is_some_and(|p| p == "/") => drop(of.remove("Path")),
        // All are in one answer.
        "ListAccessKeys" => drop(of.remove("MaxItems")),
        "ListUsers" => {
            if of.get("PathPrefix").is_some_and(|p| p == "/") {
                of.remove("PathPrefix");
            }
            asked.after = of.remove("Marker").unwrap_or_default();
            let max = of.remove("MaxItems").map(|n| n.parse::<u64>()).transpose();
            let max = max.map_err(|_| wrong("MaxItems is a number"))?;
            asked.max = max.map_or(PAGE, |n| n.clamp(1, PAGE as u64) as usize);
        }
        _ => {}
    }
    if asked.operation == "UpdateAccessKey" {
        let status = of.remove("Status").ok_or_else(missing("Status"))?;
        asked.active = match status.as_str() {
            "Active" => true,
            "Inactive" => false,
            _ => return Err(wrong("Status is Active or Inactive")),
        };
    }
    Ok(())
}

fn of_store(e: Error) -> Refusal {
    match e {
        Error::Invalid(why) => wrong(why),
        Error::NoSuchUser | Error::NoSuchAccessKey => refuse("NoSuchEntity", e.to_string()),
        Error::UserExists => refuse("EntityAlreadyExists", e.to_string()),
        Error::UserHasBuckets(_) => refuse("DeleteConflict", e.to_string()),
        e => e.into(),
    }
}

fn described(user: &User) -> String {
    let (name, arn) = (xml(&user.id), xml(&user_arn(&user.id)));
    format!(
        "<Path>/</Path><UserName>{name}</UserName><UserId>{name}</UserId><Arn>{arn}</Arn><CreateDate>{}</CreateDate>",
        iso(user.created)
    )
}

/// `secret`: to be shown, of a new one.
fn of_key(key: &Key, secret: Option<&str>) -> String {
    let status = if key.active { "Active" } else { "Inactive" };
    let secret = secret.map(|s| format!("<SecretAccessKey>{}</SecretAccessKey>", xml(s)));
    format!(
        "<UserName>{}</UserName><AccessKeyId>{}</AccessKeyId><Status>{status}</Status>{}<CreateDate>{}</CreateDate>",
        xml(&key.user),
        xml(&key.access),
        secret.unwrap_or_default(),
        iso(key.created)
    )
}

fn listed(users: &[User], more: bool) -> String {
    let one = |user: &User| format!("<member>{}</member>", described(user));
    let members: String = users.iter().map(one).collect();
    let marker = users.last().filter(|_| more).map(|u| xml(&u.id));
    let marker = marker.map(|m| format!("<Marker>{m}</Marker>"));
    let marker = marker.unwrap_or_default();
    format!("<Users>{members}</Users><IsTruncated>{more}</IsTruncated>{marker}")
}

/// A name as IAM has them, that is no project's of Keystone: whoever had that one would be the project.
fn check_new(name: &str) -> Done<()> {
    check_part("a user's name", name, (1, NAME_MAX)).map_err(of_store)?;
    match keystone::is_project(name) {
        true => Err(wrong(
            "names of 32 hexadecimal digits are those of projects of Keystone",
        )),
        false => Ok(()),
    }
}

/// Keystone could not end a key of a project's that was made here.
fn check_key_of(user: &str) -> Done<()> {
    match keystone::is_project(user) {
        true => Err(wrong(
            "keys of projects of Keystone are made there: openstack ec2 credentials create",
        )),
        false => Ok(()),
    }
}

impl<P: Pool> Front<P> {
    /// `own`: asked with a key that was made here for the user.
    pub(super) async fn users_asked(
        &self,
        (by, own): (&str, bool),
        form: BTreeMap<String, String>,
        noted: &Noted,
    ) -> Done<(&'static str, String)> {
        let asked = asked(form)?;
        noted.lock().operation = Some(asked.operation.into());
        // A key that is made here would go on where Keystone bars him who had it made.
        if !own {
            let why = "users and their keys are asked for with a key that was made here, not in Keystone";
            return Err(refuse("AccessDenied", why));
        }
        let caps = self.accounts.caps(by).await?;
        let may = match asked.writes {
            true => caps.writes_users(),
            false => caps.reads_users(),
        };
        if !may {
            let why = "the user has not the capability for it: users=read, users=write or users=*";
            return Err(refuse("AccessDenied", why));
        }
        let user = asked.user.as_deref().unwrap_or(by);
        if !asked.writes {
            return Ok((asked.operation, self.show_users(user, &asked).await?));
        }
        let (inner, access) = self.change_users(user, &asked).await?;
        // What is named is there, or was: so it is a name.
        tracing::info!("s3: {by} by IAM: {} of {user:?} {access:?}", asked.operation);
        Ok((asked.operation, inner))
    }

    async fn show_users(&self, user: &str, asked: &Asked) -> Done<String> {
        if asked.operation == "ListUsers" {
            let page = self.accounts.users_after(&asked.after, asked.max as u64).await;
            let (users, more) = page.map_err(of_store)?;
            return Ok(listed(&users, more));
        }
        let there = self.accounts.user(user).await.map_err(of_store)?;
        if asked.operation == "GetUser" {
            return Ok(format!("<User>{}</User>", described(&there)));
        }
        let keys = self.accounts.keys(user).await.map_err(of_store)?;
        let one = |key: &Key| format!("<member>{}</member>", of_key(key, None));
        let members: String = keys.iter().map(one).collect();
        Ok(format!(
            "<UserName>{}</UserName><AccessKeyMetadata>{members}</AccessKeyMetadata><IsTruncated>false</IsTruncated>",
            xml(user)
        ))
    }

    /// As AWS has it: who is in use is not removed by accident.
    async fn remove_unused(&self, user: &str) -> Done<()> {
        let accounts = &self.accounts;
        let keys = accounts.keys(user).await.map_err(of_store)?.len();
        let subusers = accounts.subusers(user).await.map_err(of_store)?.len();
        // An error where there is no such user.
        let roles = accounts.roles_of(user).await.map_err(of_store)?.len();
        for (many, what) in [
            (keys, "access keys"),
            (subusers, "subusers of Swift"),
            (roles, "roles"),
        ] {
            if many > 0 {
                let why = format!("the user has {what}, which have to be removed first");
                return Err(refuse("DeleteConflict", why));
            }
        }
        accounts.remove(user, &self.buckets).await.map_err(of_store)
    }

    /// What is said of it, and the public part of the key that it is about.
    async fn change_users(&self, user: &str, asked: &Asked) -> Done<(String, String)> {
        let accounts = &self.accounts;
        match asked.operation {
            "CreateUser" => {
                check_new(user)?;
                let made = accounts.create_without_key(user, "").await;
                let said = format!("<User>{}</User>", described(&made.map_err(of_store)?));
                return Ok((said, String::new()));
            }
            "CreateAccessKey" => {
                check_key_of(user)?;
                let key = accounts.create_key(user).await.map_err(of_store)?;
                let said = format!("<AccessKey>{}</AccessKey>", of_key(&key, Some(&key.secret)));
                return Ok((said, key.access));
            }
            "DeleteUser" => self.remove_unused(user).await?,
            "DeleteAccessKey" => {
                let removed = accounts.remove_key_of(user, &asked.access).await;
                removed.map_err(of_store)?;
            }
            _ => {
                let set = accounts.set_key_active(user, &asked.access, asked.active).await;
                set.map_err(of_store)?;
            }
        }
        Ok((String::new(), asked.access.clone()))
    }
}

/// For fuzzing: whether a form is taken.
#[cfg(feature = "testing")]
pub(super) fn takes(input: &[u8]) -> bool {
    let form = super::signed_form::fields(input).ok();
    form.is_some_and(|of| asked(of).is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::signed_form::fields;
    use super::*;

    fn form(text: &str) -> Result<Asked, String> {
        let of = fields(text.as_bytes()).unwrap();
        assert!(is_one(&of), "{text}");
        asked(of).map_err(|e| e.code)
    }

    #[test]
    fn forms_are_read_as_a_whole() {
        let made = form("Action=CreateUser&UserName=u&Path=%2F&Version=2010-05-08").unwrap();
        assert_eq!((made.user.as_deref(), made.writes), (Some("u"), true));
        let own = form("Action=ListAccessKeys&MaxItems=5").unwrap();
        assert_eq!((own.user, own.writes), (None, false));
        let page = form("Action=ListUsers&MaxItems=1000000&Marker=a&PathPrefix=%2F").unwrap();
        assert_eq!((page.max, page.after.as_str()), (PAGE, "a"));
        let set = |status: &str| {
            form(&format!(
                "Action=UpdateAccessKey&UserName=u&AccessKeyId=K&Status={status}"
            ))
        };
        assert!(set("Active").unwrap().active && !set("Inactive").unwrap().active);
        for bad in [
            "Action=CreateUser",
            "Action=CreateUser&UserName=u&Path=%2Fa%2F",
            "Action=CreateUser&UserName=u&PermissionsBoundary=x",
            "Action=CreateUser&UserName=u&Tags.member.1.Key=a",
            "Action=DeleteUser",
            "Action=DeleteAccessKey&UserName=u",
            "Action=UpdateAccessKey&UserName=u&AccessKeyId=K",
            "Action=UpdateAccessKey&UserName=u&AccessKeyId=K&Status=active",
            "Action=ListUsers&UserName=u",
            "Action=ListUsers&MaxItems=x",
        ] {
            assert_eq!(form(bad), Err("ValidationError".into()), "{bad}");
        }
        let other = BTreeMap::from([("Action".to_string(), "CreateRole".to_string())]);
        assert!(!is_one(&other));
    }

    #[test]
    fn names_of_new_users_are_no_projects() {
        assert!(check_new("alice.b@c+d=e,f").is_ok());
        for bad in ["", "a/b", "a b", "*", &"a".repeat(65), &"0f".repeat(16)] {
            assert!(check_new(bad).is_err(), "{bad}");
        }
        // Nor do projects get keys here.
        assert!(check_key_of("alice").is_ok() && check_key_of(&"0f".repeat(16)).is_err());
    }

    #[test]
    fn a_secret_is_shown_once() {
        let key = Key {
            user: "u".into(),
            access: "AK".into(),
            secret: "hidden".into(),
            created: 0,
            active: false,
        };
        let shown = of_key(&key, None);
        assert!(shown.contains("<Status>Inactive</Status>") && !shown.contains("hidden"));
        assert!(of_key(&key, Some(&key.secret)).contains("<SecretAccessKey>hidden</SecretAccessKey>"));
        assert!(!format!("{key:?}").contains("hidden"));
    }
}
