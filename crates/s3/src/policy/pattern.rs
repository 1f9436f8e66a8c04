//! Texts with `*` and `?`, and with variables, such as `${aws:username}`, of the policy language's version 2012-10-17.

use super::keys::Key;
use std::collections::BTreeMap;

/// Of a pattern, and of what it is held against: matching takes the product of the two.
pub const VALUE_MAX: usize = 2 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Char(char),
    /// `?`
    One,
    /// `*`
    Any,
    Value(Key),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// `*` and `?` are more than characters.
    pub wild: bool,
    /// `${` begins a variable.
    pub variables: bool,
}

impl Pattern {
    pub fn parse(text: &str, reading: Reading) -> Result<Self, String> {
        if text.len() > VALUE_MAX {
            return Err(format!("a text to compare with has at most {VALUE_MAX} bytes"));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if reading.variables && rest.starts_with("${") {
                let end = rest
                    .find('}')
                    .ok_or_else(|| format!("\"{text}\": a variable without its end"))?;
                pieces.push(match &rest[2..end] {
                    "*" => Piece::Char('*'),
                    "?" => Piece::Char('?'),
                    "$" => Piece::Char('$'),
                    name => Piece::Value(
                        Key::named(name)
                            .ok_or_else(|| format!("the variable \"{name}\" is not known here"))?,
                    ),
                });
                rest = &rest[end + 1..];
                continue;
            }
            pieces.push(match c {
                '*' if reading.wild => Piece::Any,
                '?' if reading.wild => Piece::One,
                c => Piece::Char(c),
            });
            rest = &rest[c.len_utf8()..];
        }
        Ok(Self(pieces))
    }

    pub fn is_plain(&self) -> bool {
        self.0.iter().all(|p| matches!(p, Piece::Char(_)))
    }

    pub fn lower(self) -> Self {
        let lower = |p| match p {
            Piece::Char(c) => Piece::Char(c.to_ascii_lowercase()),
            other => other,
        };
        Self(self.0.into_iter().map(lower).collect())
    }

    /// A variable that has no value fits nothing.
    pub fn fits(&self, text: &str, values: &BTreeMap<Key, String>) -> bool {
        let text: Vec<char> = text.chars().collect();
        let mut whole = Vec::with_capacity(self.0.len());
        let mut needed = 0;
        for piece in &self.0 {
            match piece {
                Piece::Value(key) => match values.get(key) {
                    Some(value) => {
                        needed += value.chars().count();
                        // Variables may stand for more, many times.
                        if needed > text.len() {
                            return false;
                        }
                        whole.extend(value.chars().map(Piece::Char));
                    }
                    None => return false,
                },
                other => {
                    needed += usize::from(*other != Piece::Any);
                    whole.push(other.clone());
                }
            }
        }
        if needed > text.len() {
            return false;
        }
        matched(&whole, &text)
    }
}

/// Time in the product of the lengths, at most: only the last `*` is tried again.
fn matched(pattern: &[Piece], text: &[char]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Piece::Any) => {
                again = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(Piece::One) => {}
            Some(Piece::Char(c)) if *c == text[t] => {}
            _ => {
                let Some((after, from)) = again else { return false };
                again = Some((after, from + 1));
                (p, t) = (after, from + 1);
                continue;
            }
        }
        (p, t) = (p + 1, t + 1);
    }
    pattern[p..].iter().all(|p| *p == Piece::Any)
}

/// Whether a text fits another with wildcards.
pub fn wild(pattern: &str, text: &str) -> bool {
    let reading = Reading {
        wild: true,
        variables: false,
    };
    Pattern::parse(pattern, reading).is_ok_and(|p| p.fits(text, &BTreeMap::new()))
}
