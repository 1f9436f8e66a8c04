//! `skep preflight`: prints what was found, in words or as JSON.

use crate::args;
use crate::options::Format;
use node::Error;
use node::preflight::{Finding, Verdict};
use std::time::Duration;

pub fn run(args: &args::Preflight) -> Result<(), Error> {
    let (dir, options) = (args.up.place.dir(), crate::up::options(&args.up)?);
    let probe = Duration::from_secs(args.seconds);
    let found = io::task::block_on(node::preflight::preflight(&dir, &options, probe));
    let found = found.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })?;
    match args.format {
        Format::Plain => found.iter().for_each(|f| println!("{}", line(f))),
        Format::Json => println!("{}", serde_json::Value::from_iter(found.iter().map(json))),
    }
    match found.iter().filter(|f| f.verdict == Verdict::Bad).count() {
        0 => Ok(()),
        n => Err(Error::Usage(format!(
            "{n} of these would keep `skep up` from starting"
        ))),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
    }
}

fn line(f: &Finding) -> String {
    format!("{:<8} {}: {}", word(f.verdict), f.about, f.text)
}

fn json(f: &Finding) -> serde_json::Value {
    serde_json::json!({"about": f.about, "verdict": word(f.verdict), "text": f.text})
}
