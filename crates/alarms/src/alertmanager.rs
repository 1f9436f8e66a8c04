//! The body of a webhook as Alertmanager sends it (version 4 of that format): what takes Alertmanager's takes this.
//!
//! A check is an alert named by its code, with labels that stay the same for as long as it is raised, and so its fingerprint.

use crate::news::{Item, News};
use cluster::alarms::Row;
use serde_json::{Value, json};
use std::time::Duration;
use types::Utime;

/// Alertmanager's zero time: not ended.
const NEVER: &str = "0001-01-01T00:00:00Z";

pub fn body(fsid: &str, news: &News) -> Value {
    let firing = news
        .raised
        .iter()
        .map(|(code, item)| alert(fsid, code, &item.row, Some(item), NEVER.into()));
    let ended = news
        .ended
        .iter()
        .map(|(code, row)| alert(fsid, code, row, None, rfc3339(news.now)));
    let status = if news.raised.is_empty() {
        "resolved"
    } else {
        "firing"
    };
    json!({
        "version": "4",
        "groupKey": format!("{{}}:{{cluster=\"{fsid}\"}}"),
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "skep",
        "groupLabels": {"cluster": fsid},
        "commonLabels": {"cluster": fsid, "job": "ceph"},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": firing.chain(ended).collect::<Vec<_>>(),
    })
}

fn alert(fsid: &str, code: &str, row: &Row, raised: Option<&Item>, ends: String) -> Value {
    let severity = match row.severity.as_str() {
        "HEALTH_ERR" => "critical",
        _ => "warning",
    };
    let labels = [("alertname", code), ("cluster", fsid), ("job", "ceph")];
    json!({
        "status": if raised.is_some() { "firing" } else { "resolved" },
        "labels": {"alertname": code, "cluster": fsid, "job": "ceph", "severity": severity},
        "annotations": {
            "summary": row.summary,
            "description": raised.map(|i| i.details.join("\n")).unwrap_or_default(),
        },
        "startsAt": rfc3339(row.since),
        "endsAt": ends,
        "generatorURL": "",
        "fingerprint": format!("{:016x}", fingerprint(&labels)),
    })
}

/// FNV-1a over labels and values, each ended by a byte that is in none.
fn fingerprint(labels: &[(&str, &str)]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let words = labels.iter().flat_map(|(k, v)| [k, v]);
    for byte in words.flat_map(|w| w.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

/// Of seconds since 1970, in UTC.
pub fn rfc3339(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = Utime::from_unix(Duration::from_secs(seconds)).civil();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::news::checks;
    use cluster::alarms::Book;

    #[test]
    fn what_ended_has_the_fingerprint_that_it_began_with() {
        let raised = json!({"checks": {"OSD_DOWN": {"severity": "HEALTH_WARN", "summary": {"message": "1 osds down"},
            "detail": [{"message": "osd.1 is down"}, {"message": "osd.2 is down"}]}}});
        let first = News::of(&Book::default(), &checks(&raised), 1000);
        let began = body("f-1", &first);
        assert_eq!(began["status"], "firing");
        let alert = &began["alerts"][0];
        assert_eq!(
            (&alert["status"], &alert["endsAt"]),
            (&json!("firing"), &json!(NEVER))
        );
        assert_eq!(
            alert["annotations"]["description"],
            "osd.1 is down\nosd.2 is down"
        );
        let book = Book {
            rows: first.book(),
            at: 1000,
            error: None,
        };
        let ended = body("f-1", &News::of(&book, &checks(&Value::Null), 2000));
        assert_eq!(
            (&ended["status"], &ended["alerts"][0]["status"]),
            (&json!("resolved"), &json!("resolved"))
        );
        assert_eq!(ended["alerts"][0]["fingerprint"], alert["fingerprint"]);
        assert_eq!(ended["alerts"][0]["startsAt"], alert["startsAt"]);
        assert_eq!(ended["alerts"][0]["endsAt"], "1970-01-01T00:33:20Z");
    }
}
