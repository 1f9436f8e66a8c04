//! Arguments of commands, and what is said about bad ones.

use serde_json::{Map, Value};
use types::Errno;

/// An error number, and a sentence.
pub type Refusal = (Errno, String);

pub fn refusal(errno: Errno, why: impl Into<String>) -> Refusal {
    (errno, why.into())
}

pub fn invalid(why: impl Into<String>) -> Refusal {
    refusal(Errno::EINVAL, why)
}

/// What the file system or the cluster answered.
pub fn failed(e: client::Error) -> Refusal {
    (e.errno(), e.to_string())
}

const MODE: u32 = 0o755;

pub struct Args(pub Map<String, Value>);

impl Args {
    /// "" where it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or("")
    }

    pub fn opt_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|t| !t.is_empty())
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Of a directory to be made; octal. None: it is not said.
    pub fn mode(&self) -> Result<Option<u32>, Refusal> {
        let Some(text) = self.opt_text("mode") else {
            return Ok(None);
        };
        let mode = u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777);
        mode.map(Some)
            .ok_or_else(|| invalid(format!("Invalid mode '{text}'")))
    }

    pub fn mode_or_default(&self) -> Result<u32, Refusal> {
        Ok(self.mode()?.unwrap_or(MODE))
    }

    /// A user's or a group's number.
    pub fn id(&self, name: &str) -> Result<Option<u32>, Refusal> {
        match self.int(name) {
            None => Ok(None),
            Some(n) => u32::try_from(n)
                .map(Some)
                .map_err(|_| invalid(format!("invalid {name} '{n}'"))),
        }
    }

    pub fn size(&self) -> Result<Option<u64>, Refusal> {
        match self.int("size") {
            None => Ok(None),
            Some(n) if n > 0 => Ok(Some(n as u64)),
            Some(n) => Err(invalid(format!("invalid size specified: '{n}'"))),
        }
    }

    /// Of a resize: None is without a limit.
    pub fn new_size(&self, what: &str) -> Result<Option<u64>, Refusal> {
        let text = self.0.get("new_size").map(|v| match v {
            Value::String(s) => s.clone(),
            other => other.to_string(),
        });
        let text = text.unwrap_or_default();
        if matches!(text.as_str(), "inf" | "infinite") {
            return Ok(None);
        }
        let n: i64 = text
            .parse()
            .map_err(|_| invalid(format!("invalid size option '{text}'")))?;
        match n > 0 {
            true => Ok(Some(n as u64)),
            false => Err(invalid(format!("Invalid {what} size"))),
        }
    }
}

/// Names become parts of paths.
pub fn check_name<'a>(what: &str, name: &'a str) -> Result<&'a str, Refusal> {
    let bad =
        name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) || name.len() > 240;
    match bad {
        true => Err(invalid(format!("'{name}' is not a valid name of a {what}"))),
        false => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn args(v: Value) -> Args {
        Args(v.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn sizes_and_modes_are_checked() {
        assert_eq!(args(json!({"mode": "750"})).mode_or_default(), Ok(0o750));
        assert_eq!(args(json!({})).mode_or_default(), Ok(0o755));
        assert!(args(json!({"mode": "9z"})).mode().is_err());
        assert!(args(json!({"size": -5})).size().is_err());
        for (text, want) in [("inf", None), ("infinite", None), ("20000", Some(20_000))] {
            assert_eq!(args(json!({"new_size": text})).new_size("subvolume"), Ok(want));
        }
        for text in ["0", "-3", "abc", ""] {
            assert!(
                args(json!({"new_size": text})).new_size("subvolume").is_err(),
                "{text}"
            );
        }
        for name in ["", ".", "..", "a/b"] {
            assert!(check_name("group", name).is_err(), "{name}");
        }
    }
}
