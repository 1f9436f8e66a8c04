//! Options that somebody tells one running daemon (`ceph tell ... config set`, `injectargs`): how they are written, and
//! the words in which the real one refuses them (docs/protocol/ceph/04-osd.md, section 15).

use crate::options::{self, ConfigOption};
use types::Errno;

/// Options in one command.
const INJECTED_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Names may be written with blanks or dashes.
fn name_of(text: &str) -> String {
    text.trim().replace([' ', '-'], "_")
}

/// An option with a value that fits, ready to be gone by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub name: String,
    pub value: String,
}

fn errno_text(errno: Errno) -> String {
    let text = match errno {
        Errno::ENOENT => "No such file or directory",
        Errno::EPERM => "Operation not permitted",
        _ => "Invalid argument",
    };
    format!("({}) {text}", -errno.code())
}

fn check(name: &str, option: Option<ConfigOption>, value: &str) -> Result<String, (Errno, String)> {
    let Some(option) = option.filter(|_| !name.is_empty()) else {
        return Err((Errno::ENOENT, "no such option".into()));
    };
    if !option.runtime {
        let why = format!("Configuration option '{name}' may not be modified at runtime");
        return Err((Errno::EPERM, why));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err((Errno::EINVAL, "the value is too long".into()));
    }
    option.check(value).map_err(|why| (Errno::EINVAL, why))
}

/// `config set NAME VALUE`.
pub fn set(name: &str, value: &str) -> Result<Wish, (Errno, String)> {
    let name = name_of(name);
    match check(&name, options::find(&name), value) {
        Ok(value) => Ok(Wish { name, value }),
        Err((errno, _)) => {
            let why = format!("error setting '{name}' to '{value}': {}", errno_text(errno));
            Err((errno, why))
        }
    }
}

/// `config unset NAME`: the name, if there is such an option.
pub fn unset(name: &str) -> Result<String, (Errno, String)> {
    let name = name_of(name);
    match options::find(&name) {
        Some(_) => Ok(name),
        None => {
            let why = format!("error unsetting '{name}': {}", errno_text(Errno::EINVAL));
            Err((Errno::EINVAL, why))
        }
    }
}

/// `injectargs --NAME=VALUE --NAME VALUE ...`: all of them, or why none is taken.
pub fn inject(args: &[&str]) -> Result<Vec<Wish>, (Errno, String)> {
    let words: Vec<&str> = args.iter().flat_map(|a| a.split_whitespace()).collect();
    let refuse = |why: String| (Errno::EINVAL, why);
    if words.is_empty() {
        return Err(refuse("ignoring empty injectargs".into()));
    }
    let unparsed = |at: usize| refuse(format!(" failed to parse arguments: {}\n", words[at..].join(",")));
    let (mut out, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let Some(said) = words[at].strip_prefix("--") else {
            return Err(unparsed(at));
        };
        let (name, value, taken) = match said.split_once('=') {
            Some((name, value)) => (name_of(name), Some(value), 1),
            None => (name_of(said), words.get(at + 1).copied(), 2),
        };
        let option = options::find(&name).filter(|_| !name.is_empty());
        let value = match (option, value) {
            (None, _) => return Err(unparsed(at)),
            (_, Some(value)) => value,
            (_, None) => {
                let flag = name.replace('_', "-");
                return Err(refuse(format!(
                    "Parse error setting {name} to '' using injectargs (Option --{flag} requires an argument.\n).\n"
                )));
            }
        };
        let value = check(&name, option, value).map_err(|(errno, why)| {
            let why = format!("Parse error setting {name} to '{value}' using injectargs ({why}).\n");
            (errno, why)
        })?;
        if out.len() >= INJECTED_MAX {
            return Err(refuse(format!("more than {INJECTED_MAX} options at once")));
        }
        out.push(Wish { name, value });
        at += taken;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, value: &str) -> Wish {
        Wish {
            name: name.into(),
            value: value.into(),
        }
    }

    #[test]
    fn all_forms_of_an_injected_option() {
        let check = |args: &[&str], want: &[Wish]| assert_eq!(inject(args).unwrap(), want, "{args:?}");
        check(&["--osd_max_backfills=2"], &[wish("osd_max_backfills", "2")]);
        check(&["--osd-max-backfills", "3"], &[wish("osd_max_backfills", "3")]);
        check(&["--osd-max-backfills 3"], &[wish("osd_max_backfills", "3")]);
        check(
            &["--debug_osd", "1/5", "--osd_scrub_sleep=0.1"],
            &[wish("debug_osd", "1/5"), wish("osd_scrub_sleep", "0.100000")],
        );
    }

    #[test]
    fn what_is_wrong_with_one_keeps_all_away() {
        let check = |args: &[&str], errno: Errno, begin: &str| {
            let (got, why) = inject(args).unwrap_err();
            assert!(got == errno && why.starts_with(begin), "{args:?}: {got:?} {why}");
        };
        check(&[], Errno::EINVAL, "ignoring empty");
        check(
            &["--nonesuch", "3"],
            Errno::EINVAL,
            " failed to parse arguments: --nonesuch,3",
        );
        check(
            &["--osd_max_backfills=3", "osd_max_scrubs=3"],
            Errno::EINVAL,
            " failed to parse arguments: osd_max_scrubs=3",
        );
        check(
            &["--osd_max_backfills", "abc"],
            Errno::EINVAL,
            "Parse error setting osd_max_backfills to 'abc' using injectargs (",
        );
        check(
            &["--osd-max-backfills"],
            Errno::EINVAL,
            "Parse error setting osd_max_backfills to '' using injectargs (Option --osd-max-backfills requires",
        );
        check(
            &["--ms_cluster_mode=crc"],
            Errno::EPERM,
            "Parse error setting ms_cluster_mode to 'crc' using injectargs (Configuration option",
        );
    }

    #[test]
    fn one_option_in_the_words_of_the_real_one() {
        assert_eq!(set("osd max scrubs", "2"), Ok(wish("osd_max_scrubs", "2")));
        let check = |name: &str, value: &str, errno: Errno, want: &str| {
            assert_eq!(set(name, value), Err((errno, want.to_string())));
        };
        check(
            "nonesuch",
            "3",
            Errno::ENOENT,
            "error setting 'nonesuch' to '3': (2) No such file or directory",
        );
        check(
            "osd_max_backfills",
            "abc",
            Errno::EINVAL,
            "error setting 'osd_max_backfills' to 'abc': (22) Invalid argument",
        );
        check(
            "ms_cluster_mode",
            "crc",
            Errno::EPERM,
            "error setting 'ms_cluster_mode' to 'crc': (1) Operation not permitted",
        );
        assert_eq!(unset("osd-max-backfills"), Ok("osd_max_backfills".into()));
        assert_eq!(
            unset("nonesuch").unwrap_err().1,
            "error unsetting 'nonesuch': (22) Invalid argument"
        );
    }
}
