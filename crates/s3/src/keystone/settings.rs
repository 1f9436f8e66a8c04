//! Which Keystone is asked, as whom, and what of its answers is taken: a file of lines `name = value`, which has a password and is its owner's alone.

use io::{files, task};
use net::fetch::Fetcher;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 64 << 10;
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;
const VALUE_MAX: usize = 1024;
const ROLES_MAX: usize = 100;
const NAMES: [&str; 13] = [
    "url",
    "ca",
    "user",
    "password",
    "user_domain",
    "project",
    "project_domain",
    "accepted_roles",
    "admin_roles",
    "create_users",
    "ec2",
    "cache_seconds",
    "cache_entries",
];

/// Clones are the same.
#[derive(Clone)]
pub struct Settings {
    pub(super) fetcher: Fetcher,
    pub(super) login: Login,
    /// With one of these a project's users are let in.
    pub(super) roles: Vec<String>,
    /// And with one of these to all accounts, by Swift.
    pub(super) admin_roles: Vec<String>,
    /// Projects become users when they first come.
    pub create_users: bool,
    /// Keys that are not ours are looked for there.
    pub ec2: bool,
    pub(super) cache_seconds: u64,
    pub(super) cache_entries: usize,
}

/// The gateway's own user there.
#[derive(Clone)]
pub(super) struct Login {
    pub user: String,
    pub user_domain: String,
    pub password: String,
    pub project: String,
    pub project_domain: String,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keystone: {:?} as {}", self.fetcher, self.login.user)
    }
}

impl Settings {
    /// An error in a sentence, which has nothing of the password.
    pub async fn open(path: &Path) -> Result<Self, String> {
        let of = path.to_path_buf();
        let read = task::aside("keystone", move || read(&of)).await;
        let settings = read.map_err(|e| e.to_string()).and_then(|r| r);
        settings.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// `authorities`: reads the file that is named.
    pub(super) fn parse(
        text: &str,
        authorities: impl FnOnce(&Path) -> Result<Vec<u8>, String>,
    ) -> Result<Self, String> {
        let mut given = lines(text)?;
        let mut take = |name: &str| given.remove(name);
        let mut wanted = |name: &str| {
            let value = take(name).filter(|v| !v.is_empty());
            value.ok_or_else(|| format!("it has no {name}"))
        };
        let url = wanted("url")?;
        let login = Login {
            user: wanted("user")?,
            password: wanted("password")?,
            project: wanted("project")?,
            user_domain: String::new(),
            project_domain: String::new(),
        };
        let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.into());
        let login = Login {
            user_domain: or(take("user_domain"), "Default"),
            project_domain: or(take("project_domain"), "Default"),
            ..login
        };
        let ca = take("ca").map(PathBuf::from);
        let ca = ca.map(|ca| authorities(&ca)).transpose()?;
        // As an end of the URL it is often said, too.
        let base = url.trim_end_matches('/').trim_end_matches("/v3");
        let fetcher = Fetcher::new(base, ca.as_deref()).map_err(|e| format!("url: {e}"))?;
        if ca.is_some() && fetcher.is_plain() {
            return Err("a ca is for a url that begins with https://".into());
        }
        let roles = roles("accepted_roles", &or(take("accepted_roles"), "member, admin"))?;
        let admin_roles = roles_or_none("admin_roles", take("admin_roles"))?;
        Ok(Self {
            fetcher,
            login,
            roles,
            admin_roles,
            create_users: yes("create_users", take("create_users"), true)?,
            ec2: yes("ec2", take("ec2"), false)?,
            cache_seconds: number("cache_seconds", take("cache_seconds"), 300, (0, 3600))?,
            cache_entries: number("cache_entries", take("cache_entries"), 10_000, (16, 100_000))? as usize,
        })
    }
}

fn read(path: &Path) -> Result<Settings, String> {
    let bytes = files::read_private(path, FILE_BYTES_MAX).map_err(|e| e.to_string())?;
    let bytes = bytes.ok_or_else(|| "it is not there".to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_string())?;
    Settings::parse(&text, |ca| {
        let read = files::read_bytes(ca, AUTHORITIES_BYTES_MAX);
        let read = read.map_err(|e| format!("{}: {e}", ca.display()))?;
        read.ok_or_else(|| format!("{} is not there", ca.display()))
    })
}

fn lines(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut given = BTreeMap::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // A line may have the password: it is not shown.
        let wrong = |what: &str| format!("line {}: {what}", n + 1);
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("a name, =, and a value are wanted"))?;
        let (name, value) = (name.trim(), value.trim());
        let known = NAMES.iter().find(|known| **known == name);
        let name = known.ok_or_else(|| wrong(&format!("the names are {}", NAMES.join(", "))))?;
        if value.len() > VALUE_MAX {
            return Err(wrong("a value has at most 1024 bytes"));
        }
        if value.starts_with(['"', '\'']) && *name != "password" {
            return Err(wrong("a value has no quotes around it"));
        }
        if given.insert(name.to_string(), value.to_string()).is_some() {
            return Err(wrong("this name is there twice"));
        }
    }
    Ok(given)
}

fn roles(name: &str, text: &str) -> Result<Vec<String>, String> {
    let all = text.split(',').map(str::trim).filter(|r| !r.is_empty());
    let all: Vec<String> = all.map(str::to_string).collect();
    match all.len() {
        1..=ROLES_MAX => Ok(all),
        _ => Err(format!(
            "{name} are 1 to {ROLES_MAX} names with commas between them"
        )),
    }
}

fn roles_or_none(name: &str, text: Option<String>) -> Result<Vec<String>, String> {
    match text {
        Some(text) if !text.is_empty() => roles(name, &text),
        _ => Ok(Vec::new()),
    }
}

fn yes(name: &str, text: Option<String>, default: bool) -> Result<bool, String> {
    match text.as_deref() {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(format!("{name} is true or false")),
    }
}

fn number(name: &str, text: Option<String>, default: u64, (min, max): (u64, u64)) -> Result<u64, String> {
    let Some(text) = text else { return Ok(default) };
    let number = text.parse().ok().filter(|n| (min..=max).contains(n));
    number.ok_or_else(|| format!("{name} is a number from {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "url = http://id:5000/v3/\nuser = skep\npassword = pa=ss \"word\nproject = service\n";

    fn of(text: &str) -> Result<Settings, String> {
        Settings::parse(text, |path| Err(format!("{} is asked for", path.display())))
    }

    #[test]
    fn files_are_read_or_refused() {
        let least = of(LEAST).unwrap();
        assert_eq!(least.login.password, "pa=ss \"word");
        assert_eq!(
            (
                least.login.user_domain.as_str(),
                least.login.project_domain.as_str()
            ),
            ("Default", "Default")
        );
        assert_eq!(least.roles, ["member", "admin"]);
        assert!(least.admin_roles.is_empty() && least.create_users && !least.ec2);
        assert_eq!((least.cache_seconds, least.cache_entries), (300, 10_000));
        assert_eq!(format!("{least:?}"), "Keystone: service at id:5000 as skep");
        let more = format!(
            "# ours\n{LEAST}\nuser_domain=x\naccepted_roles = a, b ,\nec2 = true\ncreate_users = false\ncache_seconds = 0\nadmin_roles = c"
        );
        let more = of(&more).unwrap();
        assert_eq!(
            (more.roles, more.admin_roles),
            (vec!["a".into(), "b".into()], vec!["c".to_string()])
        );
        assert!(more.ec2 && !more.create_users && more.cache_seconds == 0 && more.login.user_domain == "x");
        for (bad, why) in [
            (String::new(), "it has no url"),
            ("user".into(), "line 1: a name, ="),
            (LEAST.replace("password = pa=ss \"word", ""), "it has no password"),
            (format!("{LEAST}secret = 1"), "line 5: the names are"),
            (format!("{LEAST}ec2 = yes"), "ec2 is true or false"),
            (
                format!("{LEAST}ec2 = true\nec2 = true"),
                "line 6: this name is there twice",
            ),
            (format!("{LEAST}cache_seconds = 3601"), "from 0 to 3600"),
            (format!("{LEAST}accepted_roles ="), "accepted_roles are 1 to 100"),
            (format!("{LEAST}accepted_roles = \"member\""), "no quotes"),
            (format!("{LEAST}ca = /etc/x"), "/etc/x is asked for"),
            (LEAST.replace("http:", "gopher:"), "url: not a URL"),
        ] {
            let said = of(&bad).unwrap_err();
            assert!(said.contains(why) && !said.contains("pa=ss"), "{said}");
        }
    }
}
