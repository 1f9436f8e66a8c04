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
