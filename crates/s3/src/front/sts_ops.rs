//! STS, by forms (`signed_form`): users take roles (AssumeRole), get temporary keys for themselves (GetSessionToken), and anybody with a key hears who he is
//! (GetCallerIdentity). Sessions of roles take none, nor do temporary keys, which get no further ones for their user either.

use super::Front;
use super::caller::{Noted, Peer};
use super::signed_form::{By, Done, NO_SESSIONS, Refusal, refuse, xml};
use super::texts::timestamp;
use crate::Error;
use crate::policy::{Action, Key, Policy, Request, VALUE_MAX, Verdict, role_of, session_arn, user_arn};
use crate::rados::Pool;
use crate::roles::{Role, SESSION_DEFAULT, SESSION_MAX, SESSION_MIN, check_part};
use crate::session::{self, Claim, Made, Session};
use hyper::header::USER_AGENT;
use hyper::http::request::Parts;
use s3s::dto::TimestampFormat;
use std::collections::BTreeMap;

/// Of the policy that narrows a session, which its token has in it.
const POLICY_MAX: usize = 2048;

/// Seconds of a user's own temporary keys, as AWS has them.
const OWN_DEFAULT: u64 = 43_200;
const OWN_MAX: u64 = 129_600;

/// What AWS's STS does beside.
const OTHERS: [&str; 5] = [
    "AssumeRoleWithSAML",
    "AssumeRoleWithWebIdentity",
    "DecodeAuthorizationMessage",
    "GetAccessKeyInfo",
    "GetFederationToken",
];

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Role(Taking),
    /// Temporary keys for who asks, for so many seconds.
    Token(u64),
    Caller,
}

impl Asked {
    fn operation(&self) -> &'static str {
        match self {
            Self::Role(_) => "AssumeRole",
            Self::Token(_) => "GetSessionToken",
            Self::Caller => "GetCallerIdentity",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Taking {
    role: String,
    session: String,
    seconds: u64,
    policy: String,
}

fn wrong(why: impl Into<String>) -> Refusal {
    refuse("ValidationError", why)
}

fn seconds(text: Option<String>, (default, most): (u64, u64)) -> Done<u64> {
    let seconds = text.map_or(Ok(default), |text| text.parse::<u64>());
    let within = seconds.ok().filter(|n| (SESSION_MIN..=most).contains(n));
    within.ok_or_else(|| wrong(format!("DurationSeconds is {SESSION_MIN} to {most}")))
}

fn narrowing(text: Option<String>) -> Done<String> {
    let text = text.unwrap_or_default();
    if text.len() > POLICY_MAX {
        let why = format!("the policy of a session has at most {POLICY_MAX} bytes");
        return Err(refuse("PackedPolicyTooLarge", why));
    }
    if !text.is_empty() {
        Policy::of_rights(&text).map_err(|why| refuse("MalformedPolicyDocument", why))?;
    }
    Ok(text)
}

/// Refused if it has what is not known: it would be more than its user thinks.
fn asked(mut of: BTreeMap<String, String>) -> Done<Asked> {
    let action = of
        .remove("Action")
        .ok_or_else(|| refuse("MissingAction", "Action is missing"))?;
    of.remove("Version");
    if OTHERS.contains(&action.as_str()) {
        return Err(refuse("NotImplemented", format!("{action}: not built yet")));
    }
    let asked = match action.as_str() {
        "AssumeRole" => Asked::Role(taking(&mut of)?),
        "GetSessionToken" => {
            let said = of.remove("DurationSeconds");
            Asked::Token(seconds(said, (OWN_DEFAULT, OWN_MAX))?)
        }
        "GetCallerIdentity" => Asked::Caller,
        _ => return Err(refuse("InvalidAction", format!("{action:?} is no action of STS"))),
    };
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known here for {action}"))),
        None => Ok(asked),
    }
}

fn taking(of: &mut BTreeMap<String, String>) -> Done<Taking> {
    let mut part = |name: &str| of.remove(name);
    let missing = |name: &'static str| move || wrong(format!("{name} is missing"));
    let arn = part("RoleArn").ok_or_else(missing("RoleArn"))?;
    let role = role_of(&arn).ok_or_else(|| wrong("a RoleArn is arn:aws:iam:::role/NAME"))?;
    let session = part("RoleSessionName").ok_or_else(missing("RoleSessionName"))?;
    check_part("a RoleSessionName", &session, (2, 64)).map_err(|e| wrong(e.to_string()))?;
    Ok(Taking {
        role: role.to_string(),
        session,
        seconds: seconds(part("DurationSeconds"), (SESSION_DEFAULT, SESSION_MAX))?,
        policy: narrowing(part("Policy"))?,
    })
}

/// Whether a role may be taken by who says this of himself.
fn trusts(role: &Role, user: &str, values: BTreeMap<Key, String>) -> bool {
    let trust = Policy::of_trust(&role.trust).unwrap_or_else(|_| Policy::closed());
    let asked = Request {
        // Statements fit whatever is asked.
        action: Action::ListAllMyBuckets,
        bucket: "",
        key: None,
        user: Some(user),
        values,
        settled: &[],
    };
    trust.judge(&asked) == Verdict::Allow
}

/// What conditions may look at.
fn values(user: &str, parts: &Parts, now_ms: u64) -> Done<BTreeMap<Key, String>> {
    let peer = parts.extensions.get::<Peer>();
    let seconds = (now_ms / 1000).to_string();
    let mut values = BTreeMap::from([
        (Key::CurrentTime, seconds.clone()),
        (Key::EpochTime, seconds),
        (Key::PrincipalArn, user_arn(user)),
        (Key::SecureTransport, peer.is_some_and(|p| p.tls).to_string()),
        (Key::Username, user.to_string()),
    ]);
    values.extend(peer.map(|p| (Key::SourceIp, p.ip.to_string())));
    let agent = parts.headers.get(USER_AGENT).and_then(|v| v.to_str().ok());
    values.extend(agent.map(|a| (Key::UserAgent, a.to_string())));
    match values.values().all(|v| v.len() <= VALUE_MAX) {
        true => Ok(values),
        false => Err(wrong(format!("a User-Agent has at most {VALUE_MAX} bytes"))),
    }
}

/// A time as these services write it.
pub(super) fn iso(ms: u64) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = timestamp(ms).format(TimestampFormat::DateTime, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

fn elements(of: &[(&str, String)]) -> String {
    let one = |(name, value): &(&str, String)| format!("<{name}>{}</{name}>", xml(value));
    of.iter().map(one).collect()
}

fn credentials(made: &Made, claim: &Claim) -> String {
    let of = [
        ("AccessKeyId", made.access.clone()),
        ("SecretAccessKey", made.secret.clone()),
        ("SessionToken", made.token.clone()),
        ("Expiration", iso(claim.until)),
    ];
    format!("<Credentials>{}</Credentials>", elements(&of))
}

fn told(made: &Made, claim: &Claim) -> String {
    let user = [
        ("AssumedRoleId", format!("{}:{}", claim.role_id, claim.name)),
        ("Arn", session_arn(&claim.role, &claim.name)),
    ];
    let packed = claim.policy.len() * 100 / POLICY_MAX;
    format!(
        "{}<AssumedRoleUser>{}</AssumedRoleUser><PackedPolicySize>{packed}</PackedPolicySize>",
        credentials(made, claim),
        elements(&user)
    )
}

/// Who asks. There are no accounts, so the element is empty.
fn caller(user: &str, session: Option<&Session>) -> String {
    let name = |s: &Session| s.principal.rsplit('/').next().unwrap_or_default().to_string();
    let (arn, id) = match session {
        Some(s) => (session_arn(&s.role, &name(s)), s.id.clone()),
        None => (user_arn(user), user.to_string()),
    };
    elements(&[("Arn", arn), ("UserId", id), ("Account", String::new())])
}

impl<P: Pool> Front<P> {
    pub(super) async fn sts_asked(
        &self,
        by: &By,
        form: BTreeMap<String, String>,
        noted: &Noted,
        parts: &Parts,
    ) -> Done<(&'static str, String)> {
        let asked = asked(form)?;
        let (operation, user) = (asked.operation(), by.identity.user.as_str());
        noted.lock().operation = Some(operation.into());
        let session = by.identity.session.as_deref();
        let inner = match asked {
            // Whoever he is, he may know.
            Asked::Caller => caller(user, session),
            _ if session.is_some() => return Err(refuse("AccessDenied", NO_SESSIONS)),
            // A session of a role would outlive the key that ends these.
            _ if by.temporary => {
                let why = "temporary keys get no further ones, and take no roles";
                return Err(refuse("AccessDenied", why));
            }
            Asked::Token(seconds) => self.own_token(by, seconds).await?,
            Asked::Role(asked) => {
                let values = values(user, parts, self.clock.now_ms())?;
                let (made, claim) = self.take_role(user, asked, values).await?;
                told(&made, &claim)
            }
        };
        Ok((operation, inner))
    }

    /// Temporary keys with what the user may do himself. They are bound to the key that he asks with, so that there is a way to end them.
    async fn own_token(&self, by: &By, seconds: u64) -> Done<String> {
        if !by.own {
            let why = "a key of another service gets no temporary ones";
            return Err(refuse("AccessDenied", why));
        }
        let until = (self.clock.now_ms() / 1000 + seconds) * 1000;
        let claim = Claim::of_user(&by.identity.user, &by.access, until);
        let sealing = self.accounts.sealing().await?;
        let made = session::make(&sealing, &claim, &self.clock)?;
        Ok(credentials(&made, &claim))
    }

    /// The role, if the user may take it. Who may not is not told whether it is there.
    async fn trusted(&self, user: &str, name: &str, values: BTreeMap<Key, String>) -> Done<Role> {
        let role = match self.accounts.any_role(name).await {
            Ok(role) => self.accounts.role_of(name, &role.owner).await,
            Err(e) => Err(e),
        };
        let role = match role {
            Err(Error::NoSuchRole) => None,
            other => Some(other?).filter(|role| trusts(role, user, values)),
        };
        role.ok_or_else(|| {
            let why = "there is no such role, or its policy does not let the user take it";
            refuse("AccessDenied", why)
        })
    }

    async fn take_role(
        &self,
        user: &str,
        asked: Taking,
        values: BTreeMap<Key, String>,
    ) -> Done<(Made, Claim)> {
        let role = self.trusted(user, &asked.role, values).await?;
        if asked.seconds > role.session_max {
            let most = role.session_max;
            return Err(wrong(format!(
                "sessions of this role last {most} seconds at most"
            )));
        }
        let claim = Claim {
            role: role.name,
            role_id: role.id,
            owner: role.owner,
            name: asked.session,
            until: (self.clock.now_ms() / 1000 + asked.seconds) * 1000,
            policy: asked.policy,
        };
        let sealing = self.accounts.sealing().await?;
        Ok((session::make(&sealing, &claim, &self.clock)?, claim))
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

    fn role(text: &str) -> Result<Taking, String> {
        match form(text)? {
            Asked::Role(taking) => Ok(taking),
            other => panic!("{other:?}"),
        }
    }

    const GOOD: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam:::role/r&RoleSessionName=se";

    #[test]
    fn forms_are_read_as_a_whole() {
        let good = role(GOOD).unwrap();
        assert_eq!((good.role.as_str(), good.session.as_str()), ("r", "se"));
        assert_eq!((good.seconds, good.policy.as_str()), (3600, ""));
        let of = |more: &str| role(&format!("{GOOD}&{more}"));
        assert_eq!(of("DurationSeconds=900").unwrap().seconds, 900);
        for bad in [
            "DurationSeconds=899",
            "DurationSeconds=43201",
            "DurationSeconds=-1",
            "DurationSeconds=",
            "ExternalId=x",
            "Tags.member.1.Key=a",
            "PolicyArns.member.1.arn=a",
        ] {
            assert_eq!(of(bad), Err("ValidationError".into()), "{bad}");
        }
        assert_eq!(of("Policy={}"), Err("MalformedPolicyDocument".into()));
        let large = format!("Policy={}", "a".repeat(POLICY_MAX + 1));
        assert_eq!(of(&large), Err("PackedPolicyTooLarge".into()));
    }

    #[test]
    fn names_go_into_no_arn_that_is_anothers() {
        let of = |arn: &str, session: &str| {
            form(&format!(
                "Action=AssumeRole&RoleArn={arn}&RoleSessionName={session}"
            ))
        };
        assert!(of("arn:aws:iam:::role/a.b", "a@b=c").is_ok());
        for (arn, session) in [
            ("arn:aws:iam:::role/", "se"),
            ("arn:aws:iam:::role/a/b", "se"),
            ("arn:aws:iam:::role/*", "se"),
            ("arn:aws:iam:::user/a", "se"),
            ("arn:aws:sts:::assumed-role/a/se", "se"),
            ("arn:aws:iam:::role/a", "s"),
            ("arn:aws:iam:::role/a", "a/b"),
            ("arn:aws:iam:::role/a", "a%2Fb"),
            ("arn:aws:iam:::role/a", "a:b"),
            ("arn:aws:iam:::role/a", "a*"),
            ("arn:aws:iam:::role/a", "%3Cse%3E"),
        ] {
            assert_eq!(of(arn, session), Err("ValidationError".into()), "{arn} {session}");
        }
        assert_eq!(form("Action=GetFederationToken"), Err("NotImplemented".into()));
        assert_eq!(form("Action=ListTopics"), Err("InvalidAction".into()));
        assert_eq!(form(""), Err("MissingAction".into()));
    }

    #[test]
    fn who_asks_for_himself() {
        assert_eq!(form("Action=GetSessionToken"), Ok(Asked::Token(43_200)));
        let for_seconds = |n: u64| form(&format!("Action=GetSessionToken&DurationSeconds={n}"));
        assert_eq!(for_seconds(129_600), Ok(Asked::Token(129_600)));
        assert_eq!(form("Action=GetCallerIdentity"), Ok(Asked::Caller));
        let wrong = || Err("ValidationError".to_string());
        assert_eq!((for_seconds(899), for_seconds(129_601)), (wrong(), wrong()));
        for more in ["SerialNumber=x", "TokenCode=1", "Policy={}"] {
            assert_eq!(form(&format!("Action=GetSessionToken&{more}")), wrong(), "{more}");
            assert_eq!(
                form(&format!("Action=GetCallerIdentity&{more}")),
                wrong(),
                "{more}"
            );
        }
        let user = caller("u<", None);
        assert_eq!(
            user,
            "<Arn>arn:aws:iam:::user/u&lt;</Arn><UserId>u&lt;</UserId><Account></Account>"
        );
    }

    #[test]
    fn answers_are_what_clients_read() {
        let claim = Claim {
            role: "r".into(),
            role_id: "AROAX".into(),
            owner: "o".into(),
            name: "se".into(),
            until: 1_440_938_160_000,
            policy: String::new(),
        };
        let made = Made {
            access: "ASIA".into(),
            secret: "s&".into(),
            token: "t".into(),
        };
        let text = told(&made, &claim);
        for part in [
            "<SecretAccessKey>s&amp;</SecretAccessKey>",
            "<Expiration>2015-08-30T12:36:00",
            "<Arn>arn:aws:sts:::assumed-role/r/se</Arn>",
            "<AssumedRoleId>AROAX:se</AssumedRoleId>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
