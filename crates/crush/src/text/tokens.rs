//! Words of the text form: comments run from `#` to the end of the line, brackets stand for themselves.

use super::CompileError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
}

pub(super) struct Tokens<'a> {
    list: Vec<Token<'a>>,
    at: usize,
}

pub(super) type Result<T> = std::result::Result<T, CompileError>;

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut list = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let code = line.split('#').next().unwrap_or("");
            for word in code.split_ascii_whitespace() {
                split_brackets(word, i + 1, &mut list);
            }
        }
        Self { list, at: 0 }
    }

    pub fn peek(&self) -> Option<&'a str> {
        self.list.get(self.at).map(|t| t.text)
    }

    /// An error about the word taken last.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        self.error_at(self.at.saturating_sub(1), message)
    }

    /// An error about the word that comes next.
    fn error_here<T>(&self, message: impl Into<String>) -> Result<T> {
        self.error_at(self.at, message)
    }

    fn error_at<T>(&self, at: usize, message: impl Into<String>) -> Result<T> {
        let t = self.list.get(at).or_else(|| self.list.last());
        Err(CompileError {
            line: t.map_or(1, |t| t.line),
            message: message.into(),
        })
    }

    pub fn next(&mut self) -> Result<&'a str> {
        match self.list.get(self.at) {
            Some(t) => {
                self.at += 1;
                Ok(t.text)
            }
            None => self.error_here("the text ends too early"),
        }
    }

    /// Takes the next word if it is `word`.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            self.at += 1;
        }
        found
    }

    pub fn expect(&mut self, word: &str) -> Result<()> {
        if self.take(word) {
            return Ok(());
        }
        self.error_here(format!(
            "'{word}' expected, found '{}'",
            self.peek().unwrap_or("the end")
        ))
    }

    pub fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(n) if crate::valid_name(n) => self.next(),
            other => self.error_here(format!("name expected, found '{}'", other.unwrap_or("the end"))),
        }
    }

    /// A number of any type.
    pub fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N> {
        match self.peek().map(str::parse::<N>) {
            Some(Ok(n)) => {
                self.at += 1;
                Ok(n)
            }
            _ => self.error_here(format!(
                "{what} expected, found '{}'",
                self.peek().unwrap_or("the end")
            )),
        }
    }

    /// A number within bounds.
    pub fn bounded(&mut self, what: &str, low: i64, high: i64) -> Result<i64> {
        let n: i64 = self.number(what)?;
        if (low..=high).contains(&n) {
            return Ok(n);
        }
        self.error(format!("{what} {n} is not within {low}..{high}"))
    }

    /// A weight in 16.16: a 32-bit float, cut.
    pub fn weight(&mut self) -> Result<u32> {
        let w: f32 = self.number("weight")?;
        if !(0.0..=65535.0).contains(&w) {
            return self.error(format!("weight {w} is out of range"));
        }
        Ok((w * 65536.0) as u32)
    }
}

fn split_brackets<'a>(word: &'a str, line: usize, out: &mut Vec<Token<'a>>) {
    let mut start = 0;
    for (i, c) in word.char_indices() {
        if matches!(c, '{' | '}' | '[' | ']') {
            if start < i {
                let text = &word[start..i];
                out.push(Token { text, line });
            }
            let text = &word[i..=i];
            out.push(Token { text, line });
            start = i + 1;
        }
    }
    if start < word.len() {
        let text = &word[start..];
        out.push(Token { text, line });
    }
}
