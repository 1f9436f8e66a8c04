//! Turns of an event loop that take long: one line in the log says what the turn did.
//!
//! A turn is what a loop does between two waits. While a loop is in a long turn it serves nobody, so the line names the
//! events of the turn by kind, and the longest of them with what it was about.
//!
//! Time is the loop's own clock, read by the loop: once when its wait has ended, once at the turn's end, and between events
//! where it reads the clock there anyway. Nothing is allocated unless a line is written.
//!
//! Bound: one line per [`LINE_EVERY`] and loop; the next one says how many turns were left out.

use std::fmt;
use std::time::Duration;

/// A turn that lasts longer is long.
pub const LONG: Duration = Duration::from_millis(100);
pub const LINE_EVERY: Duration = Duration::from_secs(1);

/// Watches the turns of one loop. `W`: what an event may be about. `N`: kinds of events.
#[derive(Debug)]
pub struct Turns<W, const N: usize> {
    kinds: &'static [&'static str; N],
    /// None between two turns.
    began: Option<Duration>,
    /// Where the present event began.
    event_began: Duration,
    counts: [u32; N],
    bytes: u64,
    /// The present event.
    about: W,
    about_bytes: u64,
    longest: Longest<W>,
    last_line: Option<Duration>,
    left_out: u64,
    /// All turns that have ended.
    all: Duration,
}

#[derive(Debug, Default)]
struct Longest<W> {
    took: Duration,
    kind: usize,
    about: W,
    bytes: u64,
}

impl<W: Default + fmt::Display, const N: usize> Turns<W, N> {
    /// `kinds`: names of the kinds of events, in the plural, by their numbers.
    pub fn new(kinds: &'static [&'static str; N]) -> Self {
        Self {
            kinds,
            began: None,
            event_began: Duration::ZERO,
            counts: [0; N],
            bytes: 0,
            about: W::default(),
            about_bytes: 0,
            longest: Longest::default(),
            last_line: None,
            left_out: 0,
            all: Duration::ZERO,
        }
    }

    /// How long the loop was in turns since its start: what it did not wait.
    pub fn spent(&self) -> Duration {
        self.all
    }

    /// The loop's wait has ended.
    pub fn begin(&mut self, now: Duration) {
        self.began = Some(now);
        self.event_began = now;
        self.counts = [0; N];
        self.bytes = 0;
        self.longest = Longest::default();
        (self.about, self.about_bytes) = (W::default(), 0);
    }

    /// What the present event is about.
    pub fn about(&mut self) -> &mut W {
        &mut self.about
    }

    /// Bytes that the present event brought.
    pub fn brought(&mut self, bytes: usize) {
        self.about_bytes += bytes as u64;
    }

    /// The present event ends, and the next one may begin.
    pub fn did(&mut self, kind: usize, now: Duration) {
        if let Some(count) = self.counts.get_mut(kind) {
            *count += 1;
        }
        let took = now.saturating_sub(self.event_began);
        let (about, bytes) = (
            std::mem::take(&mut self.about),
            std::mem::take(&mut self.about_bytes),
        );
        self.bytes += bytes;
        if took > self.longest.took {
            self.longest = Longest {
                took,
                kind,
                about,
                bytes,
            };
        }
        self.event_began = now;
    }

    /// The turn ends. A line for the log, if it was long and one is due.
    pub fn end(&mut self, now: Duration) -> Option<Line<'_, W, N>> {
        let took = now.saturating_sub(self.began.take()?);
        self.all += took;
        if took <= LONG {
            return None;
        }
        if self
            .last_line
            .is_some_and(|at| now.saturating_sub(at) < LINE_EVERY)
        {
            self.left_out += 1;
            return None;
        }
        self.last_line = Some(now);
        let left_out = std::mem::take(&mut self.left_out);
        Some(Line {
            turns: self,
            took,
            left_out,
        })
    }
}

/// One long turn, as the log shows it.
#[derive(Debug)]
pub struct Line<'a, W, const N: usize> {
    turns: &'a Turns<W, N>,
    took: Duration,
    left_out: u64,
}

impl<W: fmt::Display, const N: usize> fmt::Display for Line<'_, W, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.turns;
        write!(f, "a turn of the loop took {} ms", self.took.as_millis())?;
        let counts = t.kinds.iter().zip(t.counts).filter(|(_, n)| *n > 0);
        for (i, (kind, n)) in counts.enumerate() {
            write!(f, "{} {n} {kind}", if i == 0 { ":" } else { "," })?;
        }
        if t.bytes > 0 {
            write!(f, ", {} bytes", t.bytes)?;
        }
        let l = &t.longest;
        if let Some(kind) = t.kinds.get(l.kind).filter(|_| !l.took.is_zero()) {
            write!(f, "; the longest event, of {kind}{}", l.about)?;
            if l.bytes > 0 {
                write!(f, " with {} bytes", l.bytes)?;
            }
            write!(f, ", took {} ms", l.took.as_millis())?;
        }
        match self.left_out {
            0 => Ok(()),
            n => write!(f, "; {n} long turns before it are not in the log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Pg(Option<u32>);

    impl fmt::Display for Pg {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.map_or(Ok(()), |pg| write!(f, " for 1.{pg}"))
        }
    }

    const KINDS: [&str; 2] = ["messages", "flushes"];

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A turn from `at` on, whose second message takes `slow` ms.
    fn turn(t: &mut Turns<Pg, 2>, at: u64, slow: u64) -> Option<String> {
        t.begin(ms(at));
        t.brought(10);
        t.did(0, ms(at + 1));
        t.about().0 = Some(7);
        t.brought(4096);
        t.did(0, ms(at + 1 + slow));
        t.did(1, ms(at + 2 + slow));
        t.end(ms(at + 3 + slow)).map(|line| line.to_string())
    }

    #[test]
    fn a_long_turn_says_what_it_did() {
        let t = &mut Turns::new(&KINDS);
        assert_eq!(turn(t, 500, 97), None, "100 ms are not long");
        assert_eq!(
            turn(t, 1000, 150).as_deref(),
            Some(
                "a turn of the loop took 153 ms: 2 messages, 1 flushes, 4106 bytes; the longest event, of messages \
                 for 1.7 with 4096 bytes, took 150 ms"
            )
        );
    }

    #[test]
    fn one_line_a_second_and_the_number_of_the_others() {
        let t = &mut Turns::new(&KINDS);
        assert!(turn(t, 0, 200).is_some());
        assert_eq!(turn(t, 300, 200), None);
        assert_eq!(turn(t, 600, 300), None);
        assert_eq!(turn(t, 1200, 1), None, "a short one");
        let line = turn(t, 1300, 200).unwrap_or_default();
        assert!(
            line.ends_with("; 2 long turns before it are not in the log"),
            "{line}"
        );
        let line = turn(t, 3000, 200).unwrap_or_default();
        assert!(line.ends_with("took 200 ms"), "{line}");
    }

    #[test]
    fn a_turn_begins_without_what_the_last_one_left() {
        let t = &mut Turns::new(&KINDS);
        turn(t, 0, 200);
        t.about().0 = Some(9);
        t.brought(5);
        t.begin(ms(5000));
        let line = t.end(ms(5200)).map(|l| l.to_string());
        assert_eq!(line.as_deref(), Some("a turn of the loop took 200 ms"));
        t.did(0, ms(5300));
        assert!(t.end(ms(9000)).is_none(), "no turn has begun");
    }
}
