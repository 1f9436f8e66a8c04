//! `skep completion` and `skep man`: completions of shells and manual pages, made from the table of options.

use crate::args;
use clap::CommandFactory;
use node::Error;
use std::io::Write;
use std::path::Path;

/// Writes the completions for one shell to stdout.
pub fn completion(args: &args::Completion) -> Result<(), Error> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut args::Args::command(), "skep", &mut out);
    std::io::stdout()
        .write_all(&out)
        .map_err(|source| failed("stdout", source))
}

/// Writes a page for the program and each of its commands: skep.1, skep-up.1, skep-osd-rm.1, ...
pub fn pages(args: &args::Man) -> Result<(), Error> {
    let mut all = args::Args::command();
    all.build();
    std::fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir.display().to_string(), e))?;
    write(&all, "skep", &args.dir)
}

fn write(command: &clap::Command, name: &str, dir: &Path) -> Result<(), Error> {
    // The page's name is the whole command's, with hyphens, as git's pages have it.
    let page = clap_mangen::Man::new(command.clone().display_name(name.to_string()))
        .title(name.to_uppercase())
        .manual("Skep");
    let mut text = Vec::new();
    page.render(&mut text).map_err(|e| failed(name, e))?;
    let path = dir.join(format!("{name}.1"));
    std::fs::write(&path, text).map_err(|e| failed(&path.display().to_string(), e))?;
    let shown = |c: &&clap::Command| !c.is_hide_set() && c.get_name() != "help";
    command
        .get_subcommands()
        .filter(shown)
        .try_for_each(|c| write(c, &format!("{name}-{}", c.get_name()), dir))
}

fn failed(what: &str, source: std::io::Error) -> Error {
    Error::Io {
        what: what.into(),
        source,
    }
}

/// docs/operating/options.md: the options of `skep up`, and those of the central configuration that act.
#[cfg(test)]
mod reference {
    use super::*;
    use crate::old::OLD;
    use cluster::options::{self, ConfigOption, Fate, OF_CLIENTS, acting::ACTING};

    fn cell(text: &str) -> String {
        text.replace('|', "\\|").replace('\n', " ")
    }

    /// Defaults that depend on something are in the help's text, in brackets.
    fn default_in(help: &str) -> (String, Option<String>) {
        let found = help
            .split_once(" [default: ")
            .and_then(|(text, rest)| Some((text, rest.split_once(']')?)));
        match found {
            Some((text, (default, rest))) => (format!("{text}{rest}"), Some(default.into())),
            None => (help.into(), None),
        }
    }

    fn row(arg: &clap::Arg) -> Option<String> {
        let long = arg
            .get_long()
            .filter(|l| !arg.is_hide_set() && !["help", "verbose"].contains(l))?;
        let help = arg.get_long_help().or_else(|| arg.get_help());
        let (help, said) = default_in(&help.map(ToString::to_string).unwrap_or_default());
        let takes = arg.get_action().takes_values();
        let values: Vec<String> = match arg.get_possible_values() {
            _ if !takes => vec![],
            all if !all.is_empty() => all.iter().map(|v| v.get_name().to_string()).collect(),
            _ => {
                let names = arg.get_value_names().unwrap_or_default();
                names.iter().map(ToString::to_string).collect()
            }
        };
        let by_clap: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|v| v.to_string_lossy())
            .collect();
        let default = match (takes, said) {
            (_, Some(said)) => said,
            (false, None) => "off".into(),
            (true, None) => by_clap.join(", "),
        };
        Some(format!(
            "| `{long}` | {} | {} | {} |\n",
            cell(&values.join(", ")),
            cell(&default),
            cell(&help)
        ))
    }

    fn up() -> String {
        let all = args::Args::command();
        let up = all.find_subcommand("up").unwrap();
        let rows: Vec<String> = up.get_arguments().filter_map(row).collect();
        let old = OLD
            .iter()
            .map(|o| format!("| `{}` | `{}` |\n", o.long, o.instead));
        let old: Vec<String> = old.collect();
        format!(
            "## Of a process\n\n{} options of `skep up`, on its command line (`--osds 4`) or in the file of `--config` (`osds = 4`).\n\n\
             | option | value | default | what it does |\n|---|---|---|---|\n{}\n\
             Former options, which this release accepts with a warning:\n\n| option | in its place |\n|---|---|\n{}",
            rows.len(),
            rows.concat(),
            old.concat()
        )
    }

    fn range(o: &ConfigOption) -> String {
        match (o.permitted.is_empty(), o.min, o.max) {
            (false, ..) => o
                .permitted
                .split(',')
                .filter(|p| !p.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
            (_, "", "") => String::new(),
            (_, min, "") => format!("from {min} on"),
            (_, "", max) => format!("up to {max}"),
            (_, min, max) => format!("{min} to {max}"),
        }
    }

    fn central() -> String {
        let count = |of: fn(&Fate) -> bool| options::names().map(options::fate).filter(of).count();
        let refused = options::names().filter(|n| matches!(options::fate(n), Fate::Refused));
        let refused: Vec<String> = refused.map(|n| format!("`{n}`")).collect();
        let prefixes: Vec<String> = OF_CLIENTS.iter().map(|p| format!("`{p}`")).collect();
        let mut out = format!(
            "\n## Of the cluster\n\n`ceph config set WHO NAME VALUE` knows {} options: those of Ceph 16.2.15 and of its manager's modules, and a few of Skep's \
             own. What becomes of one is also what `ceph config help NAME` says.\n\n| | options |\n|---|---|\n\
             | act in Skep's daemons | {}: the table below |\n\
             | act in stock clients, to whom they are handed out | {}: their names begin with {} |\n\
             | kept, and do nothing; `config set` says so | {}: all others; and any set for a section from which it is not read |\n\
             | refused, since they belong in files | {}: {} |\n\n\
             Where masks count (`osd/class:ssd`, `osd/host:a`) and single daemons (`osd.3`), the section is followed by \"each\". \
             All act within seconds, without a restart; those of the messenger on new connections; those of gateways (`rgw_`) within a minute, at \
             `skep s3 serve` from its next start on.\n\n\
             | option | type | values | default | read from | what it does |\n|---|---|---|---|---|---|\n",
            options::names().count(),
            ACTING.len(),
            count(|f| matches!(f, Fate::OfClients)),
            prefixes.join(", "),
            count(|f| matches!(f, Fate::Kept)),
            refused.len(),
            refused.join(", ")
        );
        for a in ACTING {
            let o = options::find(a.name).unwrap();
            let each = if a.readers.each { ", each" } else { "" };
            let (values, readers) = (range(&o), a.readers.text() + each);
            let columns = [o.kind, values.as_str(), o.default(true), readers.as_str(), a.what].map(cell);
            out.push_str(&format!("| `{}` | {} |\n", a.name, columns.join(" | ")));
        }
        out
    }

    #[test]
    fn page_of_options_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/options.md");
        let want = format!(
            "# Options\n\n<!-- Generated from crates/skep/src/args.rs and crates/cluster/src/options/acting.rs (test \
             `page_of_options_is_current`). -->\n\n{}{}",
            up(),
            central()
        );
        if std::env::var_os("SKEP_WRITE_DOCS").is_some() {
            std::fs::write(path, &want).unwrap();
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            have == want,
            "run the tests once with SKEP_WRITE_DOCS=1 to write {path}"
        );
    }

    #[test]
    fn defaults_in_texts() {
        for (help, text, default) in [
            ("Port [default: 3300]", "Port", Some("3300")),
            ("Port", "Port", None),
            ("A [default: b]; c", "A; c", Some("b")),
        ] {
            assert_eq!(
                default_in(help),
                (text.into(), default.map(str::to_string)),
                "{help}"
            );
        }
    }
}
