//! Conditions: operators and keys that are judged here; every other is refused when the policy is put.

use super::keys::{Key, Kind};
use super::pattern::{Pattern, Reading};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn holds(self, value: f64, wanted: f64) -> bool {
        match self {
            Self::Equal => value == wanted,
            Self::Less => value < wanted,
            Self::LessOrEqual => value <= wanted,
            Self::Greater => value > wanted,
            Self::GreaterOrEqual => value >= wanted,
        }
    }
}

/// How one value of the request is held against one of the policy.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Text { pattern: Pattern, lower: bool },
    Number(Order, f64),
    Date(Order, f64),
    Bool(bool),
    Network(IpAddr, u8),
}

/// One key of one operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    key: Key,
    /// Any of these.
    tests: Vec<Test>,
    /// None of them.
    not: bool,
    /// A request without such a value fits, too.
    if_exists: bool,
    /// Whether there shall be none: of the operator Null, which has no tests.
    null: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Text { wild: bool, lower: bool },
    Number(Order),
    Date(Order),
    Bool,
    Address,
    Null,
}

/// An operator without `IfExists`, and whether it is a negation.
fn operator(name: &str) -> Option<(Form, bool)> {
    let text = |wild, lower| Form::Text { wild, lower };
    Some(match name {
        "StringEquals" => (text(false, false), false),
        "StringNotEquals" => (text(false, false), true),
        "StringEqualsIgnoreCase" => (text(false, true), false),
        "StringNotEqualsIgnoreCase" => (text(false, true), true),
        "StringLike" => (text(true, false), false),
        "StringNotLike" => (text(true, false), true),
        "Bool" => (Form::Bool, false),
        "IpAddress" => (Form::Address, false),
        "NotIpAddress" => (Form::Address, true),
        "Null" => (Form::Null, false),
        _ => {
            let number = name.strip_prefix("Numeric");
            let order = number.or_else(|| name.strip_prefix("Date"))?;
            let (order, not) = match order {
                "Equals" => (Order::Equal, false),
                "NotEquals" => (Order::Equal, true),
                "LessThan" => (Order::Less, false),
                "LessThanEquals" => (Order::LessOrEqual, false),
                "GreaterThan" => (Order::Greater, false),
                "GreaterThanEquals" => (Order::GreaterOrEqual, false),
                _ => return None,
            };
            match number {
                Some(_) => (Form::Number(order), not),
                None => (Form::Date(order), not),
            }
        }
    })
}

/// Seconds since 1970 of a date as ISO 8601 has it, in UTC, or of that number.
pub fn seconds(text: &str) -> Option<f64> {
    if let Ok(n) = text.parse::<f64>() {
        return Some(n).filter(|n| n.is_finite());
    }
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let fields = |text: &str, by: char| -> Option<[f64; 3]> {
        let good = |f: &str| f.len() >= 2 && f.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let all = text.split(by).map(|f| f.parse().ok().filter(|_| good(f)));
        all.collect::<Option<Vec<f64>>>()?.try_into().ok()
    };
    let [year, month, day] = fields(date, '-')?;
    let [hour, minute, second] = fields(time.strip_suffix('Z')?, ':')?;
    let whole = [year, month, day, hour, minute].iter().all(|n| n.fract() == 0.0);
    let within = (1970.0..=9999.0).contains(&year)
        && (1.0..=12.0).contains(&month)
        && (1.0..=31.0).contains(&day)
        && hour < 24.0
        && minute < 60.0
        && second < 61.0;
    if !whole || !within {
        return None;
    }
    // Days of the civil calendar, of years that begin in March.
    let years = if month < 3.0 { year - 1.0 } else { year };
    let (era, months) = ((years / 400.0).floor(), (month + 9.0) % 12.0);
    let of_era = years - era * 400.0;
    let of_year = ((153.0 * months + 2.0) / 5.0).floor() + day - 1.0;
    let days = era * 146_097.0 + of_era * 365.0 + (of_era / 4.0).floor() - (of_era / 100.0).floor() + of_year;
    Some((days - 719_468.0) * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

fn network(text: &str) -> Option<Test> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(Test::Network(address, bits))
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let rest = width - u32::from(bits);
        rest == 128 || a >> rest == b >> rest
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => same(a.to_bits().into(), n.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => same(a.to_bits(), n.to_bits(), 128),
        _ => false,
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

impl Form {
    fn fits(self, kind: Kind) -> bool {
        match self {
            Self::Text { .. } | Self::Null => true,
            Self::Number(_) => kind == Kind::Number,
            Self::Date(_) => kind == Kind::Date,
            Self::Bool => kind == Kind::Bool,
            Self::Address => kind == Kind::Address,
        }
    }

    /// None: not a value for it.
    fn test(self, key: Key, value: &str, variables: bool) -> Result<Option<Test>, String> {
        let number = || value.parse::<f64>().ok().filter(|n| n.is_finite());
        Ok(match self {
            Self::Text { wild, lower } => {
                // A source is named with and without a slash before it.
                let source = value.strip_prefix('/').filter(|_| key == Key::CopySource);
                let pattern = Pattern::parse(source.unwrap_or(value), Reading { wild, variables })?;
                let pattern = if lower { pattern.lower() } else { pattern };
                Some(Test::Text { pattern, lower })
            }
            Self::Number(order) => number().map(|n| Test::Number(order, n)),
            Self::Date(order) => seconds(value).map(|s| Test::Date(order, s)),
            Self::Bool => truth(value).map(Test::Bool),
            Self::Address => network(value),
            Self::Null => None,
        })
    }
}

impl Test {
    fn holds(&self, value: &str, values: &BTreeMap<Key, String>) -> bool {
        match self {
            Self::Text { pattern, lower: true } => {
                let lower = values.iter().map(|(k, v)| (*k, v.to_ascii_lowercase()));
                pattern.fits(&value.to_ascii_lowercase(), &lower.collect())
            }
            Self::Text { pattern, .. } => pattern.fits(value, values),
            Self::Number(order, wanted) => value.parse().is_ok_and(|n| order.holds(n, *wanted)),
            Self::Date(order, wanted) => seconds(value).is_some_and(|s| order.holds(s, *wanted)),
            Self::Bool(wanted) => truth(value) == Some(*wanted),
            Self::Network(network, bits) => value.parse().is_ok_and(|a| within(a, *network, *bits)),
        }
    }
}

impl Condition {
    pub fn parse(name: &str, key: &str, values: &[String], variables: bool) -> Result<Self, String> {
        let (base, if_exists) = match name.strip_suffix("IfExists") {
            Some(base) if base != "Null" => (base, true),
            _ => (name, false),
        };
        let (form, not) =
            operator(base).ok_or_else(|| format!("the condition operator \"{name}\" is not known here"))?;
        let of = Key::named(key).ok_or_else(|| format!("the condition key \"{key}\" is not known here"))?;
        if !form.fits(of.kind()) {
            return Err(format!(
                "the operator \"{name}\" does not go with the key \"{key}\""
            ));
        }
        let mut made = Self {
            key: of,
            tests: Vec::new(),
            not,
            if_exists,
            null: None,
        };
        if let Form::Null = form {
            let [value] = values else {
                return Err("the operator \"Null\" has one value".into());
            };
            let null = truth(value).ok_or("the operator \"Null\" has the value true or false")?;
            made.null = Some(null);
            return Ok(made);
        }
        for value in values {
            let test = form.test(of, value, variables)?;
            made.tests
                .push(test.ok_or_else(|| format!("\"{value}\" is no value for \"{name}\""))?);
        }
        Ok(made)
    }

    /// `allows`: of a statement that does. What was judged before holds for it, and for no denial.
    pub fn holds(&self, values: &BTreeMap<Key, String>, settled: &[Key], allows: bool) -> bool {
        if settled.contains(&self.key) {
            return allows;
        }
        let value = values.get(&self.key);
        if let Some(null) = self.null {
            return null == value.is_none();
        }
        match value {
            None => self.if_exists || self.not,
            Some(value) => self.tests.iter().any(|t| t.holds(value, values)) != self.not,
        }
    }

    /// Names users or networks, so that not everybody is meant.
    pub fn narrows(&self) -> bool {
        let narrow = |test: &Test| match test {
            Test::Text { pattern, .. } => {
                matches!(self.key, Key::Username | Key::PrincipalArn) && pattern.is_plain()
            }
            Test::Network(IpAddr::V4(_), bits) => *bits >= 8,
            Test::Network(IpAddr::V6(_), bits) => *bits >= 32,
            _ => false,
        };
        !self.not && !self.if_exists && self.null.is_none() && self.tests.iter().all(narrow)
    }
}
