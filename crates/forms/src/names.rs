//! The names that XML shows and JSON does not: of a whole answer, and of the entries of a list.
//!
//! The table (`names.tsv`) was made from answers of Ceph 16.2.15 in both forms, by walking through them side by side. A row
//! is `scope, place, name`:
//!
//! - scope: a command, `tell` and a command for what one daemon is told, or `*`;
//! - place: `=` is the whole answer; else the field that holds the list. `F/*` is a list in the list `F`, `F/?` any field
//!   of the object `F`, which is asked first; `?` any field of the whole answer;
//! - name: `LIST:OBJECT` where the whole answer may be either, `SCALAR:OBJECT` where an entry may; `N$A,B` is the value of the
//!   last of those arguments that is there, else N; `A,B` are entries of two kinds, one after the other.

use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("names.tsv");

/// Of a list of whose entries nobody said a name.
pub const UNNAMED: &str = "item";

static ROWS: LazyLock<HashMap<(&str, &str), &str>> = LazyLock::new(|| {
    let rows = TABLE.lines().filter(|l| !l.starts_with('#'));
    rows.filter_map(|l| {
        let mut f = l.split('\t');
        Some(((f.next()?, f.next()?), f.next()?))
    })
    .collect()
});

/// What the names depend on: the command and its arguments.
pub struct Names<'a> {
    pub prefix: &'a str,
    pub args: &'a Map<String, Value>,
    /// One daemon was told it.
    pub told: bool,
}

/// Where in an answer: the field, the one that holds it, and how many lists deep in it.
#[derive(Debug, Clone, Default)]
pub struct Place<'a> {
    field: &'a str,
    parent: &'a str,
    lists: usize,
}

impl<'a> Place<'a> {
    pub fn field(&self, name: &'a str) -> Self {
        Self {
            field: name,
            parent: self.field,
            lists: 0,
        }
    }

    pub fn entry(&self) -> Self {
        Self {
            lists: self.lists + 1,
            ..self.clone()
        }
    }

    fn keys(&self) -> Vec<String> {
        match (self.lists, self.parent) {
            (0, "") => vec![self.field.into(), "?".into()],
            (0, parent) => vec![format!("{parent}/?"), self.field.into()],
            (n, _) => vec![format!("{}{}", self.field, "/*".repeat(n))],
        }
    }
}

impl Names<'_> {
    fn scopes(&self) -> Vec<String> {
        let told = self.told.then(|| format!("tell {}", self.prefix));
        told.into_iter().chain([self.prefix.to_string()]).collect()
    }

    fn find(&self, key: &str) -> Option<&'static str> {
        let own = self.scopes();
        let mut scopes = own.iter().map(String::as_str).chain(["*"]);
        scopes.find_map(|scope| ROWS.get(&(scope, key)).copied())
    }

    /// What is told to one daemon is called as the command; of the cluster's commands the table has the names.
    pub fn root(&self, v: &Value) -> String {
        let scopes = self.scopes();
        let name = scopes.iter().find_map(|s| ROWS.get(&(s.as_str(), "=")));
        let Some(name) = name else {
            return self.prefix.into();
        };
        if let Some((without, args)) = name.split_once('$') {
            let value = |arg: &str| self.args.get(arg).and_then(Value::as_str);
            return args.rsplit(',').find_map(value).unwrap_or(without).into();
        }
        let name = match name.split_once(':') {
            Some((list, _)) if v.is_array() => list,
            Some((_, object)) => object,
            None => name,
        };
        name.into()
    }

    /// Name of the entry `v`, which stands at `index` of the list at `place`.
    pub fn entry(&self, place: &Place<'_>, index: usize, v: &Value) -> String {
        let name = self.known(place).unwrap_or(UNNAMED);
        let name = match name.split_once(':') {
            Some((scalar, _)) if !v.is_object() => scalar,
            Some((_, object)) => object,
            None => name,
        };
        let kinds: Vec<&str> = name.split(',').collect();
        kinds[index % kinds.len()].into()
    }

    /// None: the table has no name for entries of this list.
    pub fn known(&self, place: &Place<'_>) -> Option<&'static str> {
        place.keys().iter().find_map(|key| self.find(key))
    }
}

/// The lists in an answer whose entries have no name in the table; for tests of those who build answers.
pub fn nameless(v: &Value, names: &Names<'_>) -> Vec<String> {
    let mut out = Vec::new();
    collect(v, names, &Place::default(), &mut out);
    out
}

fn collect(v: &Value, names: &Names<'_>, at: &Place<'_>, out: &mut Vec<String>) {
    match v {
        Value::Array(items) => {
            if names.known(at).is_none() {
                out.push(format!("{}\t{}", names.prefix, at.keys().join(" or ")));
            }
            items
                .iter()
                .for_each(|item| collect(item, names, &at.entry(), out));
        }
        Value::Object(map) => map
            .iter()
            .for_each(|(k, item)| collect(item, names, &at.field(k), out)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;
    use serde_json::json;

    fn written(prefix: &str, args: Value, v: &Value) -> String {
        let args = args.as_object().cloned().unwrap_or_default();
        let names = Names {
            prefix,
            args: &args,
            told: false,
        };
        Form::Xml.write(v, &names)
    }

    #[test]
    fn as_16_2_15_writes_them() {
        let none = || json!({});
        for (prefix, args, v, want) in [
            (
                "fsid",
                none(),
                json!({"fsid": "d5"}),
                "<fsid><fsid>d5</fsid></fsid>",
            ),
            (
                "osd pool ls",
                none(),
                json!(["a<b"]),
                "<pools><pool_name>a&lt;b</pool_name></pools>",
            ),
            (
                "osd pool ls",
                none(),
                json!([{"tiers": [1]}]),
                "<pools><pool><tiers><pool_id>1</pool_id></tiers></pool></pools>",
            ),
            (
                "pg map",
                none(),
                json!({"up": [0], "acting": []}),
                "<pg_map><up><up_osd>0</up_osd></up><acting></acting></pg_map>",
            ),
            (
                "osd map",
                none(),
                json!({"up": [0], "ok": true, "r": 0.5}),
                "<osd_map><up><osd>0</osd></up><ok>true</ok><r>0.5</r></osd_map>",
            ),
            (
                "node ls",
                json!({"type": "osd"}),
                json!({"vm": [0]}),
                "<osd><vm><osd>0</osd></vm></osd>",
            ),
            (
                "node ls",
                none(),
                json!({"mon": {"vm": ["a"]}}),
                "<nodes><mon><vm><mon>a</mon></vm></mon></nodes>",
            ),
            (
                "osd crush rule dump",
                none(),
                json!([{"steps": [{"op": "take"}]}]),
                "<rules><rule><steps><step><op>take</op></step></steps></rule></rules>",
            ),
            (
                "osd crush rule dump",
                json!({"name": "r"}),
                json!({"a b": 1}),
                "<rule><a_b>1</a_b></rule>",
            ),
        ] {
            assert_eq!(written(prefix, args, &v), want, "{prefix}");
        }
    }

    #[test]
    fn pretty_is_indented_by_one() {
        let args = Map::new();
        let names = Names {
            prefix: "health",
            args: &args,
            told: false,
        };
        let v = json!({"status": "HEALTH_OK", "checks": {}, "mutes": [{"code": "X"}]});
        let want = "<health>\n <status>HEALTH_OK</status>\n <checks>\n </checks>\n <mutes>\n  <mute>\n   \
                    <code>X</code>\n  </mute>\n </mutes>\n</health>\n\n";
        assert_eq!(Form::XmlPretty.write(&v, &names), want);
    }

    #[test]
    fn every_row_is_whole_and_stands_once() {
        let rows: Vec<&str> = TABLE.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(ROWS.len(), rows.len());
        assert!(
            rows.iter().all(|r| r.split('\t').count() == 3),
            "three fields each"
        );
    }
}
