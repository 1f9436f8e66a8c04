//! Names inside commands that an answer proposes and people paste into a shell, and inside sentences that a terminal shows.
//!
//! Clients choose the names of objects, locks and cookies: whatever they hold, a shell takes each for one word, and a
//! terminal shows what is there.

/// Means nothing to a shell, outside quotes and inside.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c)
}

/// One word: as it is where that is one.
pub fn word(s: &str) -> String {
    match !s.is_empty() && s.chars().all(is_plain) {
        true => s.to_string(),
        false => quoted(s),
    }
}

/// One word, in quotes.
pub fn quoted(s: &str) -> String {
    if s.chars().all(|c| is_plain(c) || c == ' ') {
        return format!("\"{s}\"");
    }
    if !s.chars().any(is_unseen) {
        return format!("'{}'", s.replace('\'', r"'\''"));
    }
    let of = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if is_unseen(c) => format!("\\U{:08x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", s.chars().map(of).collect::<String>())
}

/// For a sentence: what a terminal would obey is spelled out.
pub fn seen(s: &str) -> String {
    let of = |c: char| match is_unseen(c) {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    s.chars().map(of).collect()
}

/// Controls, and what turns the direction of writing round.
fn is_unseen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_each_for_one_word() {
        for (name, bare, in_quotes) in [
            ("rbd_header.10f2a", "rbd_header.10f2a", "\"rbd_header.10f2a\""),
            ("auto 94", "\"auto 94\"", "\"auto 94\""),
            ("", "\"\"", "\"\""),
            ("$(reboot)", "'$(reboot)'", "'$(reboot)'"),
            ("a;b", "'a;b'", "'a;b'"),
            ("it's \"x\"", r#"'it'\''s "x"'"#, r#"'it'\''s "x"'"#),
            ("a\nb'\\", r"$'a\U0000000ab\'\\'", r"$'a\U0000000ab\'\\'"),
        ] {
            assert_eq!((word(name).as_str(), quoted(name).as_str()), (bare, in_quotes));
        }
        assert_eq!(seen("a\u{1b}[2Jé"), r"a\u{1b}[2Jé");
    }
}
