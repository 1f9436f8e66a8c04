//! IAM: users make and change roles of their own, by forms (`signed_form`), if they have the capability for it (`roles`). Roles of others are not there for
//! them: so nobody hands out what is not his.
//!
//! Users and their keys: `iam_users`. Not here: policies of users.

use super::Front;
use super::caller::Noted;
use super::iam_users;
use super::signed_form::{By, Done, Refusal, refuse, xml};
use super::sts_ops::iso;
use super::texts::Names;
use crate::Error;
use crate::policy::{Policy, role_arn};
use crate::rados::Pool;
use crate::roles::{Role, SESSION_DEFAULT};
use std::collections::BTreeMap;

/// Roles of one answer.
const PAGE: usize = 100;

/// What is built, and whether it changes something.
const ACTIONS: [(&str, bool); 10] = [
    ("CreateRole", true),
    ("DeleteRole", true),
    ("DeleteRolePolicy", true),
    ("GetRole", false),
    ("GetRolePolicy", false),
    ("ListRolePolicies", false),
    ("ListRoles", false),
    ("PutRolePolicy", true),
    ("UpdateAssumeRolePolicy", true),
    ("UpdateRole", true),
];

#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    operation: &'static str,
    writes: bool,
    role: String,
    /// Of one of its policies.
    policy: String,
    text: String,
    longest: Option<u64>,
    after: String,
    max: usize,
}

fn wrong(why: impl Into<String>) -> Refusal {
    refuse("ValidationError", why)
}

fn number(name: &str, text: Option<String>) -> Done<Option<u64>> {
    let parsed = text.map(|text| text.parse::<u64>()).transpose();
    parsed.map_err(|_| wrong(format!("{name} is a number")))
}

/// Refused if it has what is not known: it would be less than its user thinks.
fn asked(mut of: BTreeMap<String, String>) -> Done<Asked> {
    let action = of
        .remove("Action")
        .ok_or_else(|| refuse("MissingAction", "Action is missing"))?;
    of.remove("Version");
    let known = ACTIONS.iter().find(|(name, _)| *name == action);
    let (operation, writes) = *known.ok_or_else(|| {
        let why = format!(
            "{action:?} is not built: roles with their policies, users and their access keys are made, shown, changed and removed here; what users may do is said by policies of buckets"
        );
        refuse("NotImplemented", why)
    })?;
    let mut part = |name: &str| of.remove(name).ok_or_else(|| wrong(format!("{name} is missing")));
    let mut asked = Asked {
        operation,
        writes,
        max: PAGE,
        ..Asked::default()
    };
    if operation != "ListRoles" {
        asked.role = part("RoleName")?;
    }
    if ["PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy"].contains(&operation) {
        asked.policy = part("PolicyName")?;
    }
    match operation {
        "CreateRole" => asked.text = part("AssumeRolePolicyDocument")?,
        "PutRolePolicy" | "UpdateAssumeRolePolicy" => asked.text = part("PolicyDocument")?,
        _ => {}
    }
    more(&mut asked, &mut of)?;
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known here for {action}"))),
        None => Ok(asked),
    }
}

/// What may be said, or not.
fn more(asked: &mut Asked, of: &mut BTreeMap<String, String>) -> Done<()> {
    match asked.operation {
        "CreateRole" | "UpdateRole" => {
            let name = "MaxSessionDuration";
            asked.longest = number(name, of.remove(name))?;
            // All roles are at the root.
            if of.get("Path").is_some_and(|p| p == "/") {
                of.remove("Path");
            }
        }
        "ListRoles" => {
            if of.get("PathPrefix").is_some_and(|p| p == "/") {
                of.remove("PathPrefix");
            }
            asked.after = of.remove("Marker").unwrap_or_default();
            let max = number("MaxItems", of.remove("MaxItems"))?;
            asked.max = max.map_or(PAGE, |n| n.clamp(1, PAGE as u64) as usize);
        }
        // All are in one answer.
        "ListRolePolicies" => {
            of.remove("MaxItems");
        }
        _ => {}
    }
    Ok(())
}

fn malformed(why: String) -> Refusal {
    refuse("MalformedPolicyDocument", why)
}

fn of_store(e: Error) -> Refusal {
    match e {
        Error::Invalid(why) => wrong(why),
        e => e.into(),
    }
}

/// As IAM writes a document.
fn document(text: &str) -> String {
    Names::url().write(text)
}

fn described(role: &Role) -> String {
    format!(
        "<Path>/</Path><RoleName>{}</RoleName><RoleId>{}</RoleId><Arn>{}</Arn><CreateDate>{}</CreateDate><AssumeRolePolicyDocument>{}</AssumeRolePolicyDocument><MaxSessionDuration>{}</MaxSessionDuration>",
        xml(&role.name),
        xml(&role.id),
        xml(&role_arn(&role.name)),
        iso(role.created),
        document(&role.trust),
        role.session_max
    )
}

fn no_policy() -> Refusal {
    refuse("NoSuchEntity", "the role has no policy of this name")
}

fn listed(roles: &[Role], max: usize) -> String {
    let shown = roles.get(..max).unwrap_or(roles);
    let members: String = shown
        .iter()
        .map(|r| format!("<member>{}</member>", described(r)))
        .collect();
    let more = shown.len() < roles.len();
    let marker = shown.last().filter(|_| more).map(|r| xml(&r.name));
    let marker = marker
        .map(|m| format!("<Marker>{m}</Marker>"))
        .unwrap_or_default();
    format!("<Roles>{members}</Roles><IsTruncated>{more}</IsTruncated>{marker}")
}

impl<P: Pool> Front<P> {
    pub(super) async fn iam_asked(
        &self,
        by: &By,
        form: BTreeMap<String, String>,
        noted: &Noted,
    ) -> Done<(&'static str, String)> {
        let user = by.identity.user.as_str();
        if iam_users::is_one(&form) {
            return self.users_asked((user, by.own), form, noted).await;
        }
        let asked = asked(form)?;
        noted.lock().operation = Some(asked.operation.into());
        let caps = self.accounts.caps(user).await?;
        let may = if asked.writes {
            caps.writes_roles()
        } else {
            caps.reads_roles()
        };
        if !may {
            let why = "the user has not the capability for it: roles=read, roles=write or roles=*";
            return Err(refuse("AccessDenied", why));
        }
        let inner = match asked.writes {
            true => self.change_own(user, &asked).await?,
            false => self.show_own(user, &asked).await?,
        };
        Ok((asked.operation, inner))
    }

    async fn show_own(&self, user: &str, asked: &Asked) -> Done<String> {
        if asked.operation == "ListRoles" {
            let mut roles = self.accounts.roles_of(user).await?;
            roles.retain(|r| r.name > asked.after);
            return Ok(listed(&roles, asked.max));
        }
        let role = self.accounts.role_of(&asked.role, user).await?;
        Ok(match asked.operation {
            "GetRole" => format!("<Role>{}</Role>", described(&role)),
            "GetRolePolicy" => {
                let text = role.policies.get(&asked.policy).ok_or_else(no_policy)?;
                format!(
                    "<RoleName>{}</RoleName><PolicyName>{}</PolicyName><PolicyDocument>{}</PolicyDocument>",
                    xml(&role.name),
                    xml(&asked.policy),
                    document(text)
                )
            }
            _ => {
                let member = |name: &String| format!("<member>{}</member>", xml(name));
                let names: String = role.policies.keys().map(member).collect();
                format!("<PolicyNames>{names}</PolicyNames><IsTruncated>false</IsTruncated>")
            }
        })
    }

    async fn change_own(&self, user: &str, asked: &Asked) -> Done<String> {
        if asked.operation == "CreateRole" {
            Policy::of_trust(&asked.text).map_err(malformed)?;
            let longest = asked.longest.unwrap_or(SESSION_DEFAULT);
            let made = self
                .accounts
                .create_role(&asked.role, user, &asked.text, longest, false);
            let role = made.await.map_err(of_store)?;
            return Ok(format!("<Role>{}</Role>", described(&role)));
        }
        // What is changed is this one, and none that was made since under its name.
        let id = self.accounts.role_of(&asked.role, user).await?.id;
        let same = |role: &Role| match role.id == id {
            true => Ok(()),
            false => Err(Error::NoSuchRole),
        };
        match asked.operation {
            "DeleteRole" => {
                let unused = |role: &Role| match role.policies.is_empty() {
                    true => same(role),
                    false => Err(Error::RoleInUse),
                };
                self.accounts.remove_role(&asked.role, unused).await?;
                return Ok(String::new());
            }
            "UpdateAssumeRolePolicy" => {
                Policy::of_trust(&asked.text).map_err(malformed)?;
                self.accounts.check_trust(&asked.text).await.map_err(of_store)?;
            }
            "PutRolePolicy" => drop(Policy::of_rights(&asked.text).map_err(malformed)?),
            _ => {}
        }
        let changed = self.accounts.change_role(&asked.role, |role| {
            same(role)?;
            change(role, asked)
        });
        changed.await.map_err(of_store)?;
        Ok(String::new())
    }
}

fn change(role: &mut Role, asked: &Asked) -> crate::Result<()> {
    match asked.operation {
        "PutRolePolicy" => role.put_policy(&asked.policy, &asked.text),
        "DeleteRolePolicy" => {
            let removed = role.policies.remove(&asked.policy);
            removed.map(drop).ok_or(Error::NoSuchRolePolicy)
        }
        "UpdateAssumeRolePolicy" => {
            role.trust.clone_from(&asked.text);
            Ok(())
        }
        _ => asked
            .longest
            .map_or(Ok(()), |longest| role.set_session_max(longest)),
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
        asked(fields(text.as_bytes()).unwrap()).map_err(|e| e.code)
    }

    #[test]
    fn forms_are_read_as_a_whole() {
        let made =
            form("Action=CreateRole&RoleName=r&Path=%2F&AssumeRolePolicyDocument=x&MaxSessionDuration=7200");
        let made = made.unwrap();
        assert_eq!(
            (made.operation, made.writes, made.longest),
            ("CreateRole", true, Some(7200))
        );
        assert_eq!((made.role.as_str(), made.text.as_str()), ("r", "x"));
        let page = form("Action=ListRoles&MaxItems=1000000&Marker=a").unwrap();
        assert_eq!((page.max, page.after.as_str(), page.writes), (PAGE, "a", false));
        for (bad, code) in [
            ("", "MissingAction"),
            ("Action=PutUserPolicy&UserName=u", "NotImplemented"),
            ("Action=CreateGroup", "NotImplemented"),
            ("Action=GetRole", "ValidationError"),
            ("Action=GetRole&RoleName=r&Path=x", "ValidationError"),
            (
                "Action=CreateRole&RoleName=r&AssumeRolePolicyDocument=x&Path=%2Fa%2F",
                "ValidationError",
            ),
            (
                "Action=CreateRole&RoleName=r&AssumeRolePolicyDocument=x&MaxSessionDuration=x",
                "ValidationError",
            ),
            ("Action=PutRolePolicy&RoleName=r&PolicyName=p", "ValidationError"),
        ] {
            assert_eq!(form(bad), Err(code.into()), "{bad}");
        }
    }

    #[test]
    fn pages_say_where_the_next_begins() {
        let role = |name: &str| Role {
            id: "AROAX".into(),
            name: name.into(),
            owner: "o".into(),
            of: 0,
            trust: "{\"a\": 1}".into(),
            policies: BTreeMap::new(),
            session_max: 3600,
            created: 0,
        };
        let roles = [role("a"), role("b")];
        let first = listed(&roles, 1);
        assert!(
            first.contains("<Marker>a</Marker>") && first.contains("<IsTruncated>true"),
            "{first}"
        );
        assert!(
            first.contains("<AssumeRolePolicyDocument>%7B%22a%22%3A%201%7D</"),
            "{first}"
        );
        let all = listed(&roles, 2);
        assert!(
            all.contains("<RoleName>b</") && all.contains("<IsTruncated>false") && !all.contains("Marker")
        );
    }
}
