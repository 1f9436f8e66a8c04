//! `skep up --config FILE`: options from a TOML file.
//!
//! The file has the options' own names, so it is turned into a command line and parsed by the same table: nothing can be
//! said there that cannot be said here, and the same errors come. What the command line says wins.

use crate::args::{Args, Command};
use crate::old;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use node::Error;
use std::ffi::OsString;
use std::path::Path;

/// The command line, with what its `--config` file adds; and warnings about options that have another place.
pub fn parse() -> Result<(Args, Vec<String>), Error> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let read = |m: ArgMatches| Args::from_arg_matches(&m).map(|args| (args, old::warnings(&m)));
    with_config(line).map(|parsed| parsed.and_then(read).unwrap_or_else(|e| e.exit()))
}

type Parsed = Result<ArgMatches, clap::Error>;

fn with_config(mut line: Vec<OsString>) -> Result<Parsed, Error> {
    let first = match Args::command().try_get_matches_from(&line) {
        Ok(first) => first,
        Err(e) => return Ok(Err(e)),
    };
    let config = match Args::from_arg_matches(&first).map(|a| a.command) {
        Ok(Command::Up(up)) => up.config,
        Ok(Command::Preflight(p)) => p.up.config,
        _ => return Ok(Ok(first)),
    };
    let (Some(path), Some((_, said))) = (config, first.subcommand()) else {
        return Ok(Ok(first));
    };
    line.extend(words(&path, said)?);
    Ok(Args::command().try_get_matches_from(&line))
}

fn words(path: &Path, said: &ArgMatches) -> Result<Vec<OsString>, Error> {
    let bad = |why: String| Error::Settings(format!("{}: {why}", path.display()));
    let text = io::files::read(path)
        .map_err(|e| bad(e.to_string()))?
        .ok_or_else(|| bad("no such file".into()))?;
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| bad(e.message().to_string()))?;
    let up = Args::command();
    let up = up
        .find_subcommand("up")
        .ok_or_else(|| bad("`up` is missing".into()))?;
    let mut out = Vec::new();
    for (key, value) in &table {
        let option = up
            .get_arguments()
            .find(|a| a.get_long() == Some(key) && key != "config" && key != "help")
            .ok_or_else(|| bad(format!("{key:?} is no option of `skep up`")))?;
        if said.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let values = match value {
            toml::Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        let takes_value = option.get_action().takes_values();
        for value in values {
            let word = match value {
                toml::Value::Boolean(true) if !takes_value => {
                    out.push(format!("--{key}").into());
                    continue;
                }
                toml::Value::Boolean(false) if !takes_value => continue,
                toml::Value::Boolean(true) if is_switch(option) => "on".to_string(),
                toml::Value::Boolean(false) if is_switch(option) => "off".to_string(),
                toml::Value::String(s) => s.clone(),
                toml::Value::Integer(n) => n.to_string(),
                other => return Err(bad(format!("{key}: {other} is not a value for it"))),
            };
            out.push(format!("--{key}={word}").into());
        }
    }
    Ok(out)
}

/// An option that is `on` or `off`: true and false are those.
fn is_switch(option: &clap::Arg) -> bool {
    let values = option.get_possible_values();
    values.iter().any(|v| v.get_name() == "on")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Switch, Up};
    use node::Msgr1Port;

    fn up(file: &str, line: &str) -> Result<Up, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("skep.conf");
        io::files::replace(&path, file, 0o644).unwrap();
        let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        words.push("--config".into());
        words.push(path.into());
        let matches = with_config(words)
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
        match Args::from_arg_matches(&matches).unwrap().command {
            Command::Up(up) => Ok(up),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_says_what_the_command_line_does_not() {
        let file = "osds = 4\nosd-size = \"1G\"\netcd = [\"http://a:1\", \"http://b:2\"]\ncreate = true\nbind = \"10.0.0.1\"\n";
        let found = up(file, "skep up --osds 2").unwrap();
        assert_eq!((found.osds, found.osd_size), (Some(2), Some(1 << 30)));
        assert_eq!(found.etcd.etcd, ["http://a:1", "http://b:2"]);
        assert!(found.create && !found.join);
        let found = up(file, "skep up --etcd http://c:3 --bind 10.0.0.2").unwrap();
        assert_eq!(found.etcd.etcd, ["http://c:3"]);
        assert_eq!(found.bind, Some("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn switches_are_true_and_false() {
        for (file, spare) in [
            ("spare = true", Some(Switch::On)),
            ("spare = \"on\"", Some(Switch::On)),
            ("spare = false", Some(Switch::Off)),
            ("osds = 1", None),
        ] {
            assert_eq!(up(file, "skep up").unwrap().spare, spare, "{file}");
        }
        let found = up("spare = true\nmsgr1-port = \"none\"", "skep up --spare off").unwrap();
        assert_eq!(found.spare, Some(Switch::Off));
        assert_eq!(found.msgr1_port, Some(Msgr1Port::Off));
        assert!(up("spare = \"perhaps\"", "skep up").is_err());
    }

    /// Files of before go on for a release.
    #[test]
    fn options_that_have_another_place_are_taken() {
        let file = "no-spare = true\nno-msgr1 = true\ns3 = true\ns3-domain = [\"a.test\", \"b.test\"]\ns3-gc-wait = 7\n";
        let found = up(file, "skep up").unwrap();
        assert!(found.no_spare && found.no_msgr1);
        assert_eq!(found.s3_tuning.said().domains, ["a.test", "b.test"]);
        assert_eq!(found.s3_tuning.said().gc_wait_s, Some(7));
    }

    /// `spare = false` beside `no-spare = true` no longer started.
    #[test]
    fn former_options_stand_beside_those_that_say_the_same() {
        for file in [
            "spare = false\nno-spare = true\nno-msgr1 = true",
            "spare = false\nno-spare = false\nno-msgr1 = true\nmsgr1-port = \"none\"",
            "no-spare = true\nmsgr1-port = \"none\"",
        ] {
            let options = crate::up::options(&up(file, "skep up").unwrap()).unwrap();
            assert_eq!(
                (options.spare, options.msgr1),
                (Some(false), Some(Msgr1Port::Off)),
                "{file}"
            );
        }
        for (file, why) in [
            ("spare = true\nno-spare = true", "--no-spare"),
            ("msgr1-port = 6789\nno-msgr1 = true", "--no-msgr1"),
        ] {
            let refused = crate::up::options(&up(file, "skep up").unwrap());
            let why_not = refused.map(drop).unwrap_err().to_string();
            assert!(why_not.contains(why), "{file}: {why_not}");
        }
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for (file, why) in [
            ("sods = 4", "no option"),
            ("config = \"x\"", "no option"),
            ("osds = 0", "0 is not in"),
            ("osds = 1.5", "not a value"),
            ("join = true", "--etcd"),
            ("osds = [", ""),
        ] {
            let e = up(file, "skep up").unwrap_err();
            assert!(e.contains(why), "{file}: {e}");
        }
    }
}
