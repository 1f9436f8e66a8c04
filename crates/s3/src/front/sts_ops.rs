//! STS: users take roles (AssumeRole), by forms (`signed_form`). Sessions take none.

use super::Front;
use super::caller::{Noted, Peer};
use super::signed_form::{Done, Refusal, refuse, xml};
use super::texts::timestamp;
use crate::Error;
use crate::policy::{Action, Key, Policy, Request, VALUE_MAX, Verdict, role_of, session_arn, user_arn};
use crate::rados::Pool;
use crate::roles::{Role, SESSION_DEFAULT, SESSION_MAX, SESSION_MIN, check_part};
use crate::session::{self, Claim, Made};
use hyper::header::USER_AGENT;
use hyper::http::request::Parts;
use s3s::dto::TimestampFormat;
use std::collections::BTreeMap;

/// Of the policy that narrows a session, which its token has in it.
const POLICY_MAX: usize = 2048;

/// What AWS's STS does beside.
const OTHERS: [&str; 7] = [
    "AssumeRoleWithSAML",
    "AssumeRoleWithWebIdentity",
    "DecodeAuthorizationMessage",
    "GetAccessKeyInfo",
    "GetCallerIdentity",
    "GetFederationToken",
    "GetSessionToken",
];

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    role: String,
    session: String,
    seconds: u64,
    policy: String,
}

fn wrong(why: impl Into<String>) -> Refusal {
    refuse("ValidationError", why)
}

fn seconds(text: Option<String>) -> Done<u64> {
    let seconds = text.map_or(Ok(SESSION_DEFAULT), |text| text.parse::<u64>());
    let within = seconds.ok().filter(|n| (SESSION_MIN..=SESSION_MAX).contains(n));
    within.ok_or_else(|| wrong(format!("DurationSeconds is {SESSION_MIN} to {SESSION_MAX}")))
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
    if action != "AssumeRole" {
        return Err(refuse("InvalidAction", format!("{action:?} is no action of STS")));
    }
    let mut part = |name: &str| of.remove(name);
    let missing = |name: &'static str| move || wrong(format!("{name} is missing"));
    let arn = part("RoleArn").ok_or_else(missing("RoleArn"))?;
    let role = role_of(&arn).ok_or_else(|| wrong("a RoleArn is arn:aws:iam:::role/NAME"))?;
    let session = part("RoleSessionName").ok_or_else(missing("RoleSessionName"))?;
    check_part("a RoleSessionName", &session, (2, 64)).map_err(|e| wrong(e.to_string()))?;
    let asked = Asked {
        role: role.to_string(),
        session,
        seconds: seconds(part("DurationSeconds"))?,
        policy: narrowing(part("Policy"))?,
    };
    match of.keys().next() {
        Some(name) => Err(wrong(format!("{name} is not known here for AssumeRole"))),
        None => Ok(asked),
    }
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

fn told(made: &Made, claim: &Claim) -> String {
    let credentials = [
        ("AccessKeyId", made.access.clone()),
        ("SecretAccessKey", made.secret.clone()),
        ("SessionToken", made.token.clone()),
        ("Expiration", iso(claim.until)),
    ];
    let user = [
        ("AssumedRoleId", format!("{}:{}", claim.role_id, claim.name)),
        ("Arn", session_arn(&claim.role, &claim.name)),
    ];
    let fields = |of: &[(&str, String)]| -> String {
        let field = |(name, value): &(&str, String)| format!("<{name}>{}</{name}>", xml(value));
        of.iter().map(field).collect()
    };
    let packed = claim.policy.len() * 100 / POLICY_MAX;
    format!(
        "<Credentials>{}</Credentials><AssumedRoleUser>{}</AssumedRoleUser><PackedPolicySize>{packed}</PackedPolicySize>",
        fields(&credentials),
        fields(&user)
    )
}

impl<P: Pool> Front<P> {
    pub(super) async fn sts_asked(
        &self,
        user: &str,
        form: BTreeMap<String, String>,
        noted: &Noted,
        parts: &Parts,
    ) -> Done<(&'static str, String)> {
        let asked = asked(form)?;
        noted.lock().operation = Some("AssumeRole".into());
        let values = values(user, parts, self.clock.now_ms())?;
        let (made, claim) = self.take_role(user, asked, values).await?;
        Ok(("AssumeRole", told(&made, &claim)))
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
        asked: Asked,
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

    const GOOD: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam:::role/r&RoleSessionName=se";

    #[test]
    fn forms_are_read_as_a_whole() {
        let good = form(GOOD).unwrap();
        assert_eq!((good.role.as_str(), good.session.as_str()), ("r", "se"));
        assert_eq!((good.seconds, good.policy.as_str()), (3600, ""));
        let of = |more: &str| form(&format!("{GOOD}&{more}"));
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
        assert_eq!(form("Action=GetSessionToken"), Err("NotImplemented".into()));
        assert_eq!(form("Action=ListTopics"), Err("InvalidAction".into()));
        assert_eq!(form(""), Err("MissingAction".into()));
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
