//! When an object ends by itself: what `X-Delete-At`, `X-Delete-After` and `X-Remove-Delete-At` say.

use super::answer::{Done, bad};
use super::asked::Asked;
use crate::front::times::DATES_END;

/// Seconds since 1970; None: nothing is said of it. What is said after so many seconds goes before what is said at a time, as with Swift.
pub fn ends(asked: &Asked, now_ms: u64) -> Done<Option<u64>> {
    let said = |name: &str| asked.header(name).map(str::trim).filter(|t| !t.is_empty());
    let (now, last) = (now_ms / 1000, DATES_END / 1000);
    let (name, at) = match (said("x-delete-after"), said("x-delete-at")) {
        (Some(after), _) => ("X-Delete-After", whole(after).map(|n| n.checked_add(now))),
        (None, Some(at)) => ("X-Delete-At", whole(at).map(Some)),
        (None, None) => return Ok(None),
    };
    let at = at.ok_or_else(|| bad(format!("Non-integer {name}")))?;
    match at {
        Some(at) if at <= now => Err(bad(format!("{name} in past"))),
        Some(at) if at < last => Ok(Some(at)),
        _ => Err(bad(format!("{name} beyond the year 9999"))),
    }
}

/// Without sign; what is below 0 has ended.
fn whole(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match digits.len() == text.len() {
        true => Some(digits.parse().unwrap_or(u64::MAX)),
        false => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::caller::{Noted, Peer};
    use crate::front::swift::asked::headers;
    use crate::front::swift::path::Place;
    use crate::front::swift::query::Query;

    fn of(said: &[(&'static str, &str)]) -> Result<Option<u64>, (u16, String)> {
        let asked = Asked {
            method: hyper::Method::PUT,
            uri: hyper::Uri::from_static("/"),
            place: Place::default(),
            query: Query::default(),
            headers: headers(said),
            caller: None,
            peer: Peer {
                ip: [127, 0, 0, 1].into(),
                tls: false,
            },
            noted: Noted::default(),
        };
        ends(&asked, 1_000_500).map_err(|e| (e.status.as_u16(), e.why))
    }

    #[test]
    fn times_are_read_or_refused() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("x-delete-at", "1001")]), Ok(Some(1001)));
        assert_eq!(of(&[("x-delete-after", " 1 ")]), Ok(Some(1001)));
        assert_eq!(
            of(&[("x-delete-at", "1"), ("x-delete-after", "5")]),
            Ok(Some(1005))
        );
        assert_eq!(of(&[("x-delete-at", "")]), Ok(None));
        for (name, value, why) in [
            ("x-delete-at", "1000", "X-Delete-At in past"),
            ("x-delete-at", "0", "X-Delete-At in past"),
            ("x-delete-at", "-5000", "X-Delete-At in past"),
            ("x-delete-after", "0", "X-Delete-After in past"),
            ("x-delete-after", "-1", "X-Delete-After in past"),
            ("x-delete-at", "soon", "Non-integer X-Delete-At"),
            ("x-delete-at", "1e9", "Non-integer X-Delete-At"),
            ("x-delete-after", "-", "Non-integer X-Delete-After"),
            ("x-delete-after", "1.5", "Non-integer X-Delete-After"),
            (
                "x-delete-after",
                "18446744073709551615",
                "X-Delete-After beyond the year 9999",
            ),
            (
                "x-delete-at",
                "99999999999999999999999",
                "X-Delete-At beyond the year 9999",
            ),
        ] {
            assert_eq!(
                of(&[(name, value)]),
                Err((400, why.to_string())),
                "{name} {value}"
            );
        }
    }
}
