//! Ceph's XML: an element for each field, without attributes, without a declaration.
//!
//! Element names are what the fields are called, with `_` for spaces, and not checked: names of hosts, addresses and
//! versions become elements, too, as with the real one, and its programs read them so. Deeper than [`DEPTH_MAX`] is
//! left empty.

use crate::json;
use crate::names::{Names, Place};
use serde_json::Value;

const DEPTH_MAX: usize = 64;

pub fn compact(v: &Value, names: &Names<'_>) -> String {
    let mut out = Writer {
        text: String::new(),
        pretty: false,
    };
    out.element(&names.root(v), v, names, &Place::default(), 0);
    out.text
}

/// With an empty line at the end.
pub fn pretty(v: &Value, names: &Names<'_>) -> String {
    let mut out = Writer {
        text: String::new(),
        pretty: true,
    };
    out.element(&names.root(v), v, names, &Place::default(), 0);
    out.text.push('\n');
    out.text
}

struct Writer {
    text: String,
    pretty: bool,
}

impl Writer {
    fn element(&mut self, name: &str, v: &Value, names: &Names<'_>, at: &Place<'_>, depth: usize) {
        let name = name.replace(' ', "_");
        self.indent(depth);
        self.text.push_str(&format!("<{name}>"));
        let inside = depth < DEPTH_MAX;
        match v {
            Value::Array(items) => {
                self.line();
                for (i, item) in items.iter().enumerate().filter(|_| inside) {
                    let entry = names.entry(at, i, item);
                    self.element(&entry, item, names, &at.entry(), depth + 1);
                }
                self.indent(depth);
            }
            Value::Object(map) => {
                self.line();
                for (field, item) in map.iter().filter(|_| inside) {
                    self.element(field, item, names, &at.field(field), depth + 1);
                }
                self.indent(depth);
            }
            Value::String(s) => escape(&mut self.text, s),
            Value::Null => {}
            scalar => self.text.push_str(&json::compact(scalar)),
        }
        self.text.push_str(&format!("</{name}>"));
        self.line();
    }

    fn indent(&mut self, depth: usize) {
        if self.pretty {
            (0..depth).for_each(|_| self.text.push(' '));
        }
    }

    fn line(&mut self) {
        if self.pretty {
            self.text.push('\n');
        }
    }
}

fn escape(out: &mut String, s: &str) {
    for c in s.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if (c as u32) < 0x20 && !matches!(c, '\t' | '\n') || c as u32 == 0x7f => {
                out.push_str(&format!("&#x{:02x};", c as u32));
            }
            c => out.push(c),
        }
    }
}
