//! What a command is, and its answer: no more than the words of request and reply.

use bytes::Bytes;
use cluster::Changes;
use cluster::rbd_support::Found;
use cluster::volumes::Done;
pub use forms::Form as Format;
use forms::names::Names;
use serde_json::{Map, Value};
use types::Errno;

/// The largest input (`ceph -i FILE`) that a command takes.
pub const INPUT_BYTES_MAX: usize = 16 << 20;

/// Options that may be set in the central configuration.
pub const OPTIONS_MAX: usize = 10_000;

/// One command, parsed: what was asked.
#[derive(Debug, Clone, Default)]
pub struct Command {
    pub prefix: String,
    /// All arguments, leniently typed (docs/protocol/ceph/02-monitor.md, 8.2); `prefix`, `format`, `target` are taken
    /// out.
    pub args: Map<String, Value>,
    pub format: Format,
    /// The data segment.
    pub inbuf: Bytes,
    /// One daemon is told it (`ceph tell`): some words mean another thing there.
    pub told: bool,
    /// The image that it is about, once it was looked up; never said by who asks.
    pub found: Option<Found>,
    /// What came of it, where somebody beside the monitor carries it out; never said by who asks.
    pub done: Option<Box<Done>>,
}

impl Command {
    /// Text argument; "" when it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or("")
    }

    pub(crate) fn opt_text(&self, name: &str) -> Option<&str> {
        self.args
            .get(name)
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.args.get(name).and_then(Value::as_i64)
    }

    pub(crate) fn real(&self, name: &str) -> Option<f64> {
        self.args.get(name).and_then(Value::as_f64)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.args.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let items = self.args.get(name).and_then(Value::as_array);
        items.map_or_else(Vec::new, |l| l.iter().filter_map(Value::as_str).collect())
    }

    pub(crate) fn wants_json(&self) -> bool {
        self.format != Format::Plain
    }

    /// In the wanted form; as pretty JSON when plain was wanted (for commands without a plain form).
    pub(crate) fn json(&self, v: &Value) -> Outcome {
        self.json_as(self.format, v)
    }

    /// The same for commands that are compact where nothing was wanted.
    pub(crate) fn json_compact(&self, v: &Value) -> Outcome {
        match self.format {
            Format::Plain => self.json_as(Format::Json, v),
            form => self.json_as(form, v),
        }
    }

    fn json_as(&self, form: Format, v: &Value) -> Outcome {
        Outcome::ok(form.write(v, &self.names()))
    }

    /// What XML calls things in the answer.
    pub(crate) fn names(&self) -> Names<'_> {
        Names {
            prefix: &self.prefix,
            args: &self.args,
            told: self.told,
        }
    }

    /// JSON or XML if that is wanted, else the plain text.
    pub(crate) fn either(&self, v: impl FnOnce() -> Value, plain: impl FnOnce() -> String) -> Outcome {
        if self.wants_json() {
            self.json(&v())
        } else {
            Outcome::ok(plain())
        }
    }
}

/// The answer, and what shall be changed before it is given.
#[derive(Debug, Default)]
pub struct Outcome {
    /// 0 or a negative errno. With a negative code `changes` are not committed.
    pub code: i32,
    /// The human line (standard error of the `ceph` program).
    pub status: String,
    pub data: Bytes,
    pub changes: Box<Changes>,
}

impl Outcome {
    pub fn ok(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }
    pub fn status(status: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            ..Self::default()
        }
    }
    pub fn error(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: errno.code(),
            status: status.into(),
            ..Self::default()
        }
    }
    pub fn with(mut self, changes: Changes) -> Self {
        self.changes = Box::new(changes);
        self
    }

    pub(crate) fn saying(mut self, status: impl Into<String>) -> Self {
        self.status = status.into();
        self
    }

    pub(crate) fn invalid(status: impl Into<String>) -> Self {
        Self::error(Errno::EINVAL, status)
    }

    pub(crate) fn absent(status: impl Into<String>) -> Self {
        Self::error(Errno::ENOENT, status)
    }

    /// For what the real one does and this one does not, yet.
    pub(crate) fn not_built(what: &str) -> Self {
        Self::error(Errno::EOPNOTSUPP, format!("{what} is not built in skep yet"))
    }
}

/// `items`, each followed by a newline.
pub fn lines(items: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    items.into_iter().map(|i| format!("{i}\n")).collect()
}
