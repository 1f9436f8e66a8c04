//! What the log says of the loop's turns that took long (`io::turns`). A turn is one event here: two readings of the clock.

use crate::commands;
use crate::shell::requests::{Action, Request};
use bytes::Bytes;
use std::fmt;

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Mon,
    Mgr,
    State,
    Stats,
    Tick,
    Ask,
    Committed,
    Chores,
    Heard,
    End,
}

const KINDS: [&str; 10] = [
    "messages to the monitor",
    "messages to the manager",
    "changes of the cluster state",
    "reports of OSDs",
    "ticks",
    "questions of the admin socket",
    "commits",
    "rounds of chores",
    "answers of other monitors",
    "ends",
];

/// What an event was about.
#[derive(Debug, Default)]
pub(crate) struct About {
    /// The number of its kind of message.
    pub message: Option<u16>,
    /// Its signature.
    pub command: Option<&'static str>,
    /// A question's JSON text. It may hold secrets: only the command's name is shown.
    pub question: Option<String>,
}

impl About {
    pub fn request(&mut self, request: &Request) {
        if let Action::Command { command, .. } = &request.action {
            self.command = commands::signature_of(command);
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.message {
            write!(f, ", message {kind}")?;
        }
        let asked = |text: &String| {
            let command = commands::parse(std::slice::from_ref(text), Bytes::new()).ok()?;
            commands::signature_of(&command)
        };
        match self.command.or_else(|| self.question.as_ref().and_then(asked)) {
            Some(sig) => write!(f, ", command '{}'", commands::words_of(sig)),
            None => Ok(()),
        }
    }
}

pub(crate) type Turns = io::turns::Turns<About, { KINDS.len() }>;

pub(crate) fn watch() -> Turns {
    Turns::new(&KINDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_long_turn_names_its_command_and_nothing_of_its_arguments() {
        let mut turns = watch();
        turns.begin(Duration::from_secs(1));
        let secret = r#"{"prefix": "config-key set", "key": "a", "val": "hidden"}"#;
        turns.about().question = Some(secret.into());
        turns.did(Kind::Ask as usize, Duration::from_millis(1250));
        let line = turns.end(Duration::from_millis(1250)).map(|l| l.to_string());
        let line = line.unwrap_or_default();
        assert!(
            line.starts_with("a turn of the loop took 250 ms: 1 questions of the admin socket"),
            "{line}"
        );
        assert!(
            line.contains("command 'config-key set'") && !line.contains("hidden"),
            "{line}"
        );
    }
}
