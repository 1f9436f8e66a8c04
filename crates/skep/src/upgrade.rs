//! `skep upgrade`: whether this program can take the place of the one that serves, and whether that one could come back.

use crate::options::{Format, Where};
use clap::{Args as ClapArgs, Subcommand};
use io::key_file::KeyFile;
use node::Error;
use node::upgrade::{Found, Verdict};
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at what a machine and its cluster hold, before this program replaces the one that serves.
    ///
    /// Nothing is changed, and the store may be running. Exit code 0: this program goes on with all of it, and the release before could come
    /// back to what was looked at; 1: not so.
    #[command(verbatim_doc_comment)]
    Check(Check),
}

#[derive(Debug, ClapArgs)]
struct Check {
    #[command(flatten)]
    place: Where,
    /// File with the keys of OSDs that are encrypted, as for `skep up`
    #[arg(long, value_name = "FILE")]
    osd_keys: Option<PathBuf>,
    /// Also succeed where the release before does not read what is there or what a start makes of it: there is no way back
    #[arg(long)]
    one_way: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "plain")]
    format: Format,
}

pub fn run(args: &Args) -> Result<(), Error> {
    match &args.command {
        Command::Check(a) => check(a),
    }
}

fn check(args: &Check) -> Result<(), Error> {
    let keys = args.osd_keys.as_deref().map(KeyFile::read).transpose();
    let keys = keys.map_err(Error::Usage)?;
    let found = io::task::block_on(node::upgrade::check(&args.place.dir(), keys.as_ref()));
    let found = found.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })??;
    match args.format {
        Format::Plain => found.iter().for_each(|f| println!("{}", line(f))),
        Format::Json => println!("{}", json(&found)),
    }
    judge(&found, args.one_way)
}

fn judge(found: &[Found], one_way: bool) -> Result<(), Error> {
    let refused = found.iter().filter(|f| f.verdict == Verdict::Refused).count();
    if refused > 0 {
        return Err(Error::Usage(format!(
            "this program cannot go on with {refused} of these"
        )));
    }
    // Of what was not looked at the version is not known: who serves it says what he does not read.
    let seen = found.iter().filter(|f| f.verdict != Verdict::NotSeen);
    let lost: Vec<String> = seen
        .filter(|f| !f.way_back)
        .map(|f| format!("{} ({})", f.name, f.place))
        .collect();
    if lost.is_empty() || one_way {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the release before could not go on with {} (--one-way accepts that)",
        lost.join(", ")
    )))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::NotSeen => "not-seen",
        Verdict::OneWay => "one-way",
        Verdict::Refused => "refused",
    }
}

fn line(f: &Found) -> String {
    let version = f.version.map_or("?".to_string(), |v| v.to_string());
    let range = match f.reads_from == f.writes {
        true => format!("reads and writes {}", f.writes),
        false => format!("reads {} to {}", f.reads_from, f.writes),
    };
    let verdict = word(f.verdict);
    format!(
        "{verdict:<8} {}, {}: version {version} ({range}): {}",
        f.name, f.place, f.text
    )
}

fn json(found: &[Found]) -> serde_json::Value {
    let one = |f: &Found| {
        serde_json::json!({
            "name": f.name,
            "place": f.place,
            "version": f.version,
            "writes": f.writes,
            "reads_from": f.reads_from,
            "converts": f.converts,
            "way_back": f.way_back,
            "verdict": word(f.verdict),
            "text": f.text,
        })
    };
    serde_json::Value::from_iter(found.iter().map(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(verdict: Verdict, way_back: bool) -> Found {
        Found {
            name: "store of an OSD",
            place: "osd.0".into(),
            version: Some(1),
            writes: 2,
            reads_from: 1,
            converts: true,
            way_back,
            verdict,
            text: "a sentence".into(),
        }
    }

    #[test]
    fn only_who_says_so_goes_one_way() {
        use Verdict::{Good, NotSeen, OneWay, Refused};
        let of = |verdicts: &[(Verdict, bool)], one_way| {
            let found: Vec<Found> = verdicts.iter().map(|(v, back)| found(*v, *back)).collect();
            judge(&found, one_way).map_err(|e| e.to_string())
        };
        assert!(of(&[(Good, true), (NotSeen, false)], false).is_ok());
        // What a start changes, and what it leaves as it is: an encrypted OSD.
        for lost in [(OneWay, false), (Good, false)] {
            let said = of(&[(Good, true), lost], false).unwrap_err();
            assert!(
                said.contains("--one-way") && said.contains("store of an OSD (osd.0)"),
                "{said}"
            );
            assert!(of(&[(Good, true), lost], true).is_ok());
        }
        let refused = of(&[(Refused, false), (OneWay, false)], true).unwrap_err();
        assert!(refused.contains("cannot go on with 1"), "{refused}");
        let line = line(&found(Good, true));
        assert_eq!(
            line,
            "good     store of an OSD, osd.0: version 1 (reads 1 to 2): a sentence"
        );
    }
}
