//! The forms in which commands answer: Ceph's dialect of JSON, and its XML.
//!
//! An answer is built once, as JSON ([`serde_json::Value`]). XML needs names that JSON does not show: of the whole answer,
//! and of the entries of each list. One table has them ([`names`]), by the command and by the field that holds the list.
//!
//! Pure text: nothing here knows a command. Not here: plain text, which each command has its own of.

pub mod json;
pub mod names;
mod xml;

use names::Names;
use serde_json::Value;

/// How the caller wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Plain,
    Json,
    JsonPretty,
    Xml,
    XmlPretty,
}

impl Form {
    /// What the argument `format` means to the monitor; what it does not know is plain.
    pub fn of(word: Option<&str>) -> Self {
        match word {
            Some("json") => Self::Json,
            Some("json-pretty" | "") => Self::JsonPretty,
            Some("xml") => Self::Xml,
            Some("xml-pretty") => Self::XmlPretty,
            _ => Self::Plain,
        }
    }

    /// The answer in this form; pretty JSON where plain was wanted, for commands without a plain form.
    pub fn write(self, v: &Value, names: &Names<'_>) -> String {
        match self {
            Self::Json => json::compact(v),
            Self::Plain | Self::JsonPretty => json::pretty(v),
            Self::Xml => xml::compact(v, names),
            Self::XmlPretty => xml::pretty(v, names),
        }
    }
}
