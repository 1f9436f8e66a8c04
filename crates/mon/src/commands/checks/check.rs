//! One health check: code, severity and wording as the real one has them.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warn,
    Err,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
    pub fn tag(self) -> &'static str {
        match self {
            Self::Warn => "WRN",
            Self::Err => "ERR",
        }
    }
}

pub struct Check {
    pub code: &'static str,
    pub severity: Severity,
    pub summary: String,
    pub count: u64,
    pub detail: Vec<String>,
}

/// PGs or OSDs listed one by one in the details; the rest is counted.
const DETAILS_MAX: usize = 50;

pub fn warn(code: &'static str, summary: String, count: u64, detail: Vec<String>) -> Check {
    check(code, Severity::Warn, summary, count, detail)
}

pub fn check(
    code: &'static str,
    severity: Severity,
    summary: String,
    count: u64,
    mut detail: Vec<String>,
) -> Check {
    if detail.len() > DETAILS_MAX {
        let more = detail.len() - DETAILS_MAX;
        detail.truncate(DETAILS_MAX);
        detail.push(format!("{more} more not shown"));
    }
    Check {
        code,
        severity,
        summary,
        count,
        detail,
    }
}
