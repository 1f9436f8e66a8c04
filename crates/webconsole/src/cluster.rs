//! Questions to the cluster, as the one who has logged in.

use client::{Client, Target};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use types::Errno;

/// What an operation may take; then the page says so.
pub const WITHIN: Duration = Duration::from_secs(20);

/// An answer, or why there is none, in words.
pub type Asked<T = Value> = Result<T, String>;

/// A command with its arguments, as JSON that asks for JSON.
pub fn command(prefix: &str, args: &[(&str, Value)]) -> String {
    let mut all = Map::new();
    all.insert("prefix".into(), prefix.into());
    all.extend(args.iter().map(|(k, v)| (k.to_string(), v.clone())));
    all.entry("format").or_insert("json".into());
    Value::Object(all).to_string()
}

/// What a command of the monitor answers.
pub fn ask<'a>(
    client: &'a Client,
    prefix: &'a str,
    args: &[(&str, Value)],
) -> impl Future<Output = Asked> + use<'a> {
    ask_for(client, prefix, args)
}

/// The same, of what is wanted of a long answer.
pub fn ask_for<'a, T: DeserializeOwned>(
    client: &'a Client,
    prefix: &'a str,
    args: &[(&str, Value)],
) -> impl Future<Output = Asked<T>> + use<'a, T> {
    let command = command(prefix, args);
    async move {
        let said = client.mon_command(&command, "").await;
        let said = said.map_err(|e| format!("{prefix}: {e}"))?;
        parsed(prefix, &said.output)
    }
}

/// What an OSD answers.
pub async fn tell(client: &Client, osd: i32, prefix: &str) -> Asked {
    let said = client.command(Target::Osd(osd), &command(prefix, &[]), "").await;
    let said = said.map_err(|e| format!("osd.{osd}: {prefix}: {e}"))?;
    parsed(prefix, &said.output)
}

fn parsed<T: DeserializeOwned>(prefix: &str, output: &[u8]) -> Asked<T> {
    serde_json::from_slice(output).map_err(|_| format!("{prefix}: an answer that is not understood"))
}

/// Why it cannot be said that a change was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    NotDone(String),
    /// It may have happened all the same, wholly or in part.
    Unknown(String),
    GoesOn(String),
}

impl Trouble {
    /// `errno`: as the client or the cluster says it.
    pub fn of(errno: Errno, words: String) -> Self {
        match errno {
            // No answer is no answer, whatever was sent.
            Errno::ETIMEDOUT | Errno::ENOTCONN | Errno::EIO => Self::Unknown(words),
            _ => Self::NotDone(words),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDone(why) => write!(f, "It was not done: {why}"),
            Self::Unknown(why) => write!(
                f,
                "Whether it was done is not known: {why}. Look before you ask for it again"
            ),
            Self::GoesOn(why) => write!(f, "It is not done yet: {why}"),
        }
    }
}

/// Carries out a command that changes something; what it said.
pub async fn order(client: &Client, command: &str) -> Result<String, Trouble> {
    let said = client.mon_command(command, "").await;
    let said = said.map_err(|e| Trouble::of(e.errno(), e.to_string()))?;
    Ok(said.status)
}

/// Short ways into answers: what is not there is empty.
pub trait Peek {
    fn text(&self, name: &str) -> &str;
    fn number(&self, name: &str) -> u64;
    fn float(&self, name: &str) -> f64;
    fn list(&self, name: &str) -> &[Value];
}

impl Peek for Value {
    fn text(&self, name: &str) -> &str {
        self[name].as_str().unwrap_or("")
    }

    fn number(&self, name: &str) -> u64 {
        self[name].as_u64().unwrap_or(0)
    }

    fn float(&self, name: &str) -> f64 {
        self[name].as_f64().unwrap_or(0.0)
    }

    fn list(&self, name: &str) -> &[Value] {
        self[name].as_array().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_not_a_refusal() {
        let said = |e: client::Error| Trouble::of(e.errno(), e.to_string()).to_string();
        assert!(said(client::Error::TimedOut).starts_with("Whether it was done is not known"));
        assert!(said(client::Error::Closed).starts_with("Whether it was done is not known"));
        assert!(said(client::Error::refused(-17, "x")).starts_with("It was not done"));
        assert!(said(client::Error::Busy).starts_with("It was not done"));
    }
}
