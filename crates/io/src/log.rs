//! What log lines may hold, and how many of one sort.
//!
//! Clients name things (entities, pools, objects, classes) and so write into our log: [`OneLine`] keeps what they write
//! in its line and without power over the terminal that shows it. The program's log formatter passes every field of
//! every event through it ([`write_field`]); text that goes elsewhere, as into the cluster log, uses [`one_line`].
//!
//! Who is refused often makes many lines: [`refused`] writes [`BURST`] at once and then one a second, and says how many it
//! left out. It remembers two numbers, whoever is refused.

use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Lines about refusals that may come at once.
pub const BURST: u64 = 20;
/// Time after which one more may come.
pub const EVERY: Duration = Duration::from_secs(1);

/// Passes text on with control characters escaped.
pub struct OneLine<W>(pub W);

/// Ends a line, moves the cursor, or turns the direction of what follows.
fn has_power(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl<W: Write> Write for OneLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(has_power) {
            self.0.write_str(&rest[..at])?;
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// The text with control characters escaped.
pub fn one_line(text: &str) -> String {
    let mut out = OneLine(String::with_capacity(text.len()));
    // Writing to a string does not fail.
    let _ = out.write_str(text);
    out.0
}

/// One field of an event as the log shows it: `name=value`, and the message without its name.
pub fn write_field(to: &mut dyn Write, name: &str, value: &dyn fmt::Debug) -> fmt::Result {
    let mut to = OneLine(to);
    match name {
        "message" => write!(to, "{value:?}"),
        _ => write!(to, "{name}={value:?}"),
    }
}

#[derive(Debug)]
struct Allowance {
    /// Lines that may come now, and since when so many.
    left: u64,
    since: Duration,
    left_out: u64,
}

impl Allowance {
    const fn new() -> Self {
        Self {
            left: BURST,
            since: Duration::ZERO,
            left_out: 0,
        }
    }

    /// Whether one more line may come, and how many were left out before it.
    fn take(&mut self, now: Duration) -> Option<u64> {
        // Simulated processes have clocks of their own: one may be behind.
        let earned = now.saturating_sub(self.since).as_secs() / EVERY.as_secs();
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.since = now;
        }
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

static REFUSALS: Mutex<Allowance> = Mutex::new(Allowance::new());

/// Logs that somebody was refused something, unless there were too many such lines. `now`: any clock that goes forward.
pub fn refused(now: Duration, line: fmt::Arguments<'_>) {
    let may = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner).take(now);
    match may {
        None => {}
        Some(0) => tracing::warn!("{line}"),
        Some(n) => tracing::warn!("{line} ({n} refusals before it are not in the log)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        let name = "x\n2026-01-01 ERROR all is lost\r\x1b[2J\u{85}\u{202e}é";
        assert_eq!(
            one_line(name),
            "x\\n2026-01-01 ERROR all is lost\\r\\u{1b}[2J\\u{85}\\u{202e}é"
        );
        let mut line = String::new();
        write_field(
            &mut line,
            "message",
            &format_args!("unknown entity client.{name}"),
        )
        .unwrap();
        assert!(!line.contains(has_power), "{line}");
        line.clear();
        write_field(&mut line, "peer", &format_args!("{name}")).unwrap();
        assert!(
            line.starts_with("peer=x\\n2026") && !line.contains(has_power),
            "{line}"
        );
    }

    #[test]
    fn refusals_do_not_fill_the_log() {
        let mut lines = Allowance::new();
        let sec = Duration::from_secs;
        let written = (0..1000).filter(|_| lines.take(sec(5)).is_some()).count();
        assert_eq!(written as u64, BURST);
        assert_eq!(
            lines.take(sec(6)),
            Some(1000 - BURST),
            "and it says how many it left out"
        );
        assert_eq!(lines.take(sec(6)), None);
        assert_eq!(lines.take(sec(3)), None, "a clock behind");
        assert_eq!(lines.take(sec(8)), Some(2));
    }
}
