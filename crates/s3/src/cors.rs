//! Which origins may use a bucket from a browser: the rules, and how requests are matched with them.

use crate::settings::CorsRule;
use crate::{Error, Result};

pub const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
pub const RULES_MAX: usize = 100;
/// All texts of all rules together.
const TEXT_MAX: usize = 64 << 10;
const ID_MAX: usize = 255;

/// `pattern` has at most one `*`.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

/// As [`fits`], whatever the case.
fn fits_name(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let Some(star) = pattern.iter().position(|b| *b == b'*') else {
        return pattern.eq_ignore_ascii_case(name);
    };
    let (head, tail) = (&pattern[..star], &pattern[star + 1..]);
    name.len() >= head.len() + tail.len()
        && name[..head.len()].eq_ignore_ascii_case(head)
        && name[name.len() - tail.len()..].eq_ignore_ascii_case(tail)
}

/// Names of headers, but for `*`.
fn is_name(name: &str, wild: bool) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&b) || (wild && b == b'*');
    !name.is_empty() && name.bytes().all(good)
}

fn check_rule(rule: &CorsRule) -> std::result::Result<(), String> {
    if rule.origins.is_empty() || rule.methods.is_empty() {
        return Err("a rule of CORS has at least one origin and one method".into());
    }
    if rule.id.len() > ID_MAX {
        return Err(format!("the id of a rule of CORS has at most {ID_MAX} bytes"));
    }
    if let Some(method) = rule.methods.iter().find(|m| !METHODS.contains(&m.as_str())) {
        return Err(format!(
            "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
        ));
    }
    let stars = |t: &&String| t.matches('*').count() > 1;
    if let Some(text) = rule.origins.iter().chain(&rule.headers).find(stars) {
        return Err(format!("\"{text}\" can not have more than one wildcard"));
    }
    // An origin is answered as it came, and `*` as it is.
    if rule
        .origins
        .iter()
        .any(|o| o.is_empty() || !o.bytes().all(|b| b.is_ascii_graphic()))
    {
        return Err("an origin of CORS is a text without spaces".into());
    }
    let bad = |list: &[String], wild| list.iter().find(|h| !is_name(h, wild)).cloned();
    match bad(&rule.headers, true).or_else(|| bad(&rule.expose, false)) {
        Some(name) => Err(format!(
            "\"{name}\" is no name of a header that CORS can allow or expose"
        )),
        None => Ok(()),
    }
}

pub fn check(rules: &[CorsRule]) -> Result<()> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(Error::Invalid(format!("CORS has 1 to {RULES_MAX} rules")));
    }
    let texts = rules.iter().flat_map(|r| {
        let lists = [&r.origins, &r.methods, &r.headers, &r.expose];
        lists.into_iter().flatten().chain([&r.id])
    });
    if texts.map(|t| t.len() + 8).sum::<usize>() > TEXT_MAX {
        return Err(Error::Invalid("rules of CORS have at most 64 KiB".into()));
    }
    rules
        .iter()
        .try_for_each(|r| check_rule(r).map_err(Error::Invalid))
}

/// A rule that allows a request, and the origin as the answer has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed<'a> {
    pub rule: &'a CorsRule,
    /// Any origin: the answer says `*`, and browsers send no credentials then.
    pub any: bool,
}

/// The first rule for this origin and method, and for all these headers.
pub fn allowed<'a>(
    rules: &'a [CorsRule],
    origin: &str,
    method: &str,
    headers: &[String],
) -> Option<Allowed<'a>> {
    rules.iter().find_map(|rule| {
        let by = rule.origins.iter().find(|o| fits(o, origin))?;
        let header = |h: &String| rule.headers.iter().any(|p| fits_name(p, h));
        let fits = rule.methods.iter().any(|m| m == method) && headers.iter().all(header);
        fits.then_some(Allowed { rule, any: by == "*" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CorsRule {
        let list = |of: &[&str]| of.iter().map(|s| s.to_string()).collect();
        CorsRule {
            origins: list(origins),
            methods: list(methods),
            headers: list(headers),
            ..CorsRule::default()
        }
    }

    #[test]
    fn the_first_rule_that_fits_is_taken() {
        let rules = [
            rule(&["https://*.example"], &["GET"], &[]),
            rule(&["https://a.example"], &["PUT"], &["X-Amz-*", "content-type"]),
            rule(&["*"], &["HEAD"], &["*"]),
        ];
        let of = |origin, method, headers: &[&str]| {
            let headers: Vec<String> = headers.iter().map(|h| h.to_string()).collect();
            let allowed = allowed(&rules, origin, method, &headers)?;
            let at = rules.iter().position(|r| r == allowed.rule);
            Some((at?, allowed.any))
        };
        assert_eq!(of("https://a.example", "GET", &[]), Some((0, false)));
        assert_eq!(of("https://a.example", "GET", &["x"]), None);
        assert_eq!(of("https://.example", "GET", &[]), Some((0, false)));
        assert_eq!(of("https://example", "GET", &[]), None);
        assert_eq!(of("http://a.example", "GET", &[]), None);
        assert_eq!(
            of("https://a.example", "PUT", &["x-amz-meta-a", "content-type"]),
            Some((1, false))
        );
        assert_eq!(of("https://a.example", "PUT", &["x-other"]), None);
        assert_eq!(of("https://a.example", "PUT", &["x-amz"]), None);
        assert_eq!(
            of("https://a.example", "PUT", &["X-AMZ-", "Content-Type"]),
            Some((1, false))
        );
        assert_eq!(of("null", "HEAD", &["any"]), Some((2, true)));
    }

    #[test]
    fn rules_that_say_nothing_good_are_refused() {
        let good = rule(&["*"], &["GET"], &[]);
        assert!(check(std::slice::from_ref(&good)).is_ok());
        let expose = |name: &str| CorsRule {
            expose: vec![name.into()],
            ..good.clone()
        };
        for bad in [
            rule(&[], &["GET"], &[]),
            rule(&["*"], &[], &[]),
            rule(&["*"], &["PATCH"], &[]),
            rule(&["*.*"], &["GET"], &[]),
            rule(&["a b"], &["GET"], &[]),
            rule(&["*"], &["GET"], &["a*b*"]),
            rule(&["*"], &["GET"], &["a:b"]),
            rule(&[&"o".repeat(TEXT_MAX)], &["GET"], &[]),
            expose("*"),
            expose("a\nb"),
        ] {
            assert!(check(std::slice::from_ref(&bad)).is_err(), "{bad:?}");
        }
        assert!(check(&[]).is_err() && check(&vec![good; RULES_MAX + 1]).is_err());
    }
}
