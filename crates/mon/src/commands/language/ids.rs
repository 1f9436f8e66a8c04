//! Names of OSDs and pools as arguments.

use crate::commands::command::Outcome;
use types::OsdId;

/// `3` or `osd.3`; the error is the status line.
pub fn parse_osd_id(text: &str) -> Result<OsdId, String> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    match digits.parse::<OsdId>() {
        Ok(id) if id >= 0 => Ok(id),
        _ => Err(format!("Expected option value to be integer, got '{digits}'")),
    }
}

pub fn unknown_pool(name: &str) -> Outcome {
    Outcome::absent(format!("unrecognized pool '{name}'"))
}
