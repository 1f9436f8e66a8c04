//! A position in a capability text with ordered choice and backtracking: the grammars' common tokens.
//!
//! Every method either consumes what it names and says so, or consumes nothing. Grammars have no
//! recursion and every loop consumes at least a byte, so parsing is bounded by the text.

use super::network::Network;

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// All of `body` or nothing of it.
    pub fn attempt<T>(&mut self, body: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.at;
        let out = body(self);
        if out.is_none() {
            self.at = before;
        }
        out
    }

    fn take_while(&mut self, f: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let n = rest.find(|c| !f(c)).unwrap_or(rest.len());
        self.at += n;
        &rest[..n]
    }

    pub fn blanks(&mut self) {
        self.take_while(|c| c.is_ascii_whitespace() || c == '\x0b');
    }

    /// At least one blank.
    pub fn gap(&mut self) -> Option<()> {
        let before = self.at;
        self.blanks();
        (self.at > before).then_some(())
    }

    pub fn lit(&mut self, s: &str) -> Option<()> {
        self.rest().starts_with(s).then(|| self.at += s.len())
    }

    /// A blank and then `s`.
    pub fn keyword(&mut self, s: &str) -> Option<()> {
        self.attempt(|c| {
            c.gap()?;
            c.lit(s)
        })
    }

    /// `=` or blanks, between a name and its value.
    pub fn equals(&mut self) -> Option<()> {
        self.lit("=").or_else(|| self.gap())
    }

    pub fn word(&mut self) -> Option<String> {
        self.attempt(|c| {
            let w = c.take_while(is_word);
            (!w.is_empty()).then(|| w.to_string())
        })
    }

    fn quoted(&mut self) -> Option<String> {
        self.attempt(|c| {
            let quote = c.rest().chars().next().filter(|q| matches!(q, '"' | '\''))?;
            c.at += 1;
            let s = c.take_while(|x| x != quote).to_string();
            c.lit(if quote == '"' { "\"" } else { "'" })?;
            Some(s)
        })
    }

    /// A quoted string that may be empty, or a word.
    pub fn string_or_empty(&mut self) -> Option<String> {
        self.quoted().or_else(|| self.word())
    }

    pub fn string(&mut self) -> Option<String> {
        self.attempt(|c| c.string_or_empty().filter(|s| !s.is_empty()))
    }

    /// `key` (`=` or blanks) string, after a blank.
    pub fn named(&mut self, key: &str) -> Option<String> {
        self.attempt(|c| {
            c.keyword(key)?;
            c.equals()?;
            c.string()
        })
    }

    /// Unsigned decimal number.
    pub fn number(&mut self) -> Option<u32> {
        self.attempt(|c| c.take_while(|x| x.is_ascii_digit()).parse().ok())
    }

    /// `network ADDR/PREFIX` after a blank.
    pub fn network(&mut self) -> Option<Network> {
        self.attempt(|c| {
            c.keyword("network")?;
            c.gap()?;
            let text = c.take_while(|x| x.is_ascii_hexdigit() || matches!(x, '.' | ':' | '/'));
            (!text.is_empty()).then(|| Network::new(text))
        })
    }

    /// One or more grants between `,` or `;`, with blanks around all of it.
    pub fn list<T>(&mut self, mut grant: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.attempt(|c| {
            c.blanks();
            let mut out = vec![grant(c)?];
            while let Some(g) = c.attempt(|c| {
                c.blanks();
                c.lit(",").or_else(|| c.lit(";"))?;
                c.blanks();
                grant(c)
            }) {
                out.push(g);
            }
            c.blanks();
            Some(out)
        })
    }
}
