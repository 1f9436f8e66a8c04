//! How a command of `skep store` ends.

use ::store::Error;
use std::path::Path;

/// How a command ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Damage,
}

impl Verdict {
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Good, Self::Good) => Self::Good,
            _ => Self::Damage,
        }
    }
}

#[derive(Debug)]
pub enum Fail {
    Store(Error),
    /// What was tried, and why it failed.
    Io(String, std::io::Error),
    /// What is asked for does not make sense here.
    Usage(String),
}

impl From<Error> for Fail {
    fn from(e: Error) -> Self {
        Self::Store(e)
    }
}

impl Fail {
    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        let damage = [
            matches!(self, Fail::Store(Error::Index { .. })),
            matches!(self, Fail::Store(Error::LogDamaged { .. })),
            matches!(self, Fail::Store(Error::Corrupt { .. })),
        ];
        if damage.contains(&true) { 1 } else { 2 }
    }

    pub fn output(e: std::io::Error) -> Self {
        Self::Io("write the output".into(), e)
    }

    pub fn path(what: &str, path: &Path, e: std::io::Error) -> Self {
        Self::Io(format!("{what} {}", path.display()), e)
    }
}

pub type Outcome = Result<Verdict, Fail>;
