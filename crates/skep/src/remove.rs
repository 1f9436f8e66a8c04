//! `skep host rm` and `skep osd rm`: asks the running process for one step after the other until nothing is left to do.
//!
//! Invariant: all that is known is in the cluster: ended at any moment and run again, it goes on where it was.

use crate::args::{Host, HostRm, OsdCommand, OsdRm, Removal};
use crate::up::spinner;
use node::{DataDir, Error};
use serde_json::{Value, json};
use std::time::Duration;

/// Time between two steps.
const STEP: Duration = Duration::from_secs(1);

pub fn host(args: &Host) -> Result<(), Error> {
    let HostRm::Rm { host, how } = &args.command;
    let request = json!({"prefix": "skep host rm", "host": host});
    run(request, &format!("skep host rm {host}"), how)
}

pub fn osd(args: &OsdCommand) -> Result<(), Error> {
    let OsdRm::Rm { id, how } = &args.command;
    run(
        json!({"prefix": "skep osd rm", "id": id}),
        &format!("skep osd rm {id}"),
        how,
    )
}

fn run(mut request: Value, command: &str, how: &Removal) -> Result<(), Error> {
    let dir = DataDir::existing(&how.place.dir())?;
    request["begin"] = json!(how.yes);
    let bar = spinner("asking");
    let mut said = String::new();
    loop {
        let answer = node::admin::ask(&dir, &request.to_string())?;
        let answer: Value = serde_json::from_str(&answer)
            .map_err(|e| Error::Usage(format!("an answer that cannot be read ({e}): {answer}")))?;
        let text = |key: &str| {
            answer
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        if !text("error").is_empty() {
            bar.finish_and_clear();
            return Err(Error::Usage(text("error")));
        }
        let (phase, now) = (text("phase"), text("text"));
        if now != said {
            bar.suspend(|| println!("{now}"));
            bar.set_message(now.clone());
            said = now;
        }
        match phase.as_str() {
            "done" => break,
            "planned" => {
                bar.finish_and_clear();
                return Err(Error::Usage(format!("nothing is done yet: {command} --yes")));
            }
            _ => std::thread::sleep(STEP),
        }
    }
    bar.finish_and_clear();
    Ok(())
}
