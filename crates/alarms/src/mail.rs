//! E-mails in plain text, over SMTP.
//!
//! `smtp_ssl` (as it is by default) is TLS from the first byte; without it STARTTLS is used where the server has it, and demanded before a password is sent.

use crate::alertmanager::rfc3339;
use crate::news::{Checks, News};
use cluster::alarms::Mail;
use lettre::message::{Mailbox, Mailboxes, header};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use std::time::Duration;

/// For the whole of one delivery; the library has it for each step.
const WITHIN: Duration = Duration::from_secs(20);
const SUBJECT_CODES: usize = 3;

pub async fn send(settings: &Mail, fsid: &str, news: &News, checks: &Checks) -> Result<(), String> {
    let message = message(settings, fsid, news, checks)?;
    let transport = transport(settings)?;
    let sent = io::task::timeout(WITHIN * 2, transport.send(message)).await;
    let place = format!("{}:{}", settings.host, settings.port);
    match sent {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(format!("{place}: {}", causes(&e))),
        Err(_) => Err(format!(
            "{place} did not take the mail within {} s",
            (WITHIN * 2).as_secs()
        )),
    }
}

fn causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(e) = next {
        let said = e.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = e.source();
    }
    text
}

fn transport(s: &Mail) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let tls = TlsParameters::new(s.host.clone()).map_err(|e| e.to_string())?;
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&s.host)
        .port(s.port)
        .timeout(Some(WITHIN))
        .tls(match (s.tls, s.user.is_empty()) {
            (true, _) => Tls::Wrapper(tls),
            (false, false) => Tls::Required(tls),
            (false, true) => Tls::Opportunistic(tls),
        });
    if !s.user.is_empty() {
        builder = builder.credentials(Credentials::new(s.user.clone(), s.password.clone()));
    }
    Ok(builder.build())
}

fn message(s: &Mail, fsid: &str, news: &News, checks: &Checks) -> Result<Message, String> {
    let sender: Address = s.sender.trim().parse().map_err(|e| format!("smtp_sender: {e}"))?;
    let to: Mailboxes = s.to.parse().map_err(|e| format!("smtp_destination: {e}"))?;
    Message::builder()
        .from(Mailbox::new(Some(s.from_name.clone()), sender))
        .mailbox(header::To::from(to))
        .subject(subject(news))
        .header(header::ContentType::TEXT_PLAIN)
        .body(text(fsid, news, checks))
        .map_err(|e| e.to_string())
}

fn status(news: &News) -> &'static str {
    match news.raised.values().any(|i| i.row.severity == "HEALTH_ERR") {
        true => "HEALTH_ERR",
        false if news.raised.is_empty() => "HEALTH_OK",
        false => "HEALTH_WARN",
    }
}

/// What changed comes first: it is read on a telephone.
fn subject(news: &News) -> String {
    let some = |codes: Vec<&str>| {
        let more = codes.len().saturating_sub(SUBJECT_CODES);
        let first = codes[..codes.len() - more].join(", ");
        if more > 0 {
            format!("{first} and {more} more")
        } else {
            first
        }
    };
    let mut parts = Vec::new();
    if !news.new.is_empty() {
        parts.push(format!(
            "new: {}",
            some(news.new.iter().map(String::as_str).collect())
        ));
    }
    if !news.ended.is_empty() {
        parts.push(format!(
            "ended: {}",
            some(news.ended.keys().map(String::as_str).collect())
        ));
    }
    if parts.is_empty() && !news.raised.is_empty() {
        parts.push(format!(
            "still: {}",
            some(news.raised.keys().map(String::as_str).collect())
        ));
    }
    match parts.is_empty() {
        true => status(news).to_string(),
        false => format!("{} ({})", status(news), parts.join("; ")),
    }
}

fn text(fsid: &str, news: &News, checks: &Checks) -> String {
    let mut out = format!("Cluster {fsid}: {} at {}\n", status(news), rfc3339(news.now));
    let (new, old): (Vec<_>, Vec<_>) = checks.iter().partition(|(code, _)| news.new.contains(code));
    for (title, these) in [("New", new), ("Still raised", old)] {
        if !these.is_empty() {
            out += &format!("\n--- {title} ---\n");
        }
        for (code, check) in these {
            let tag = if check.severity == "HEALTH_ERR" {
                "ERR"
            } else {
                "WRN"
            };
            out += &format!("[{tag}] {code}: {}\n", check.summary);
            out.extend(check.details.iter().map(|d| format!("        {d}\n")));
        }
    }
    if !news.ended.is_empty() {
        out += "\n--- Ended ---\n";
    }
    for (code, row) in &news.ended {
        out += &format!("{code}: {} (since {})\n", row.summary, rfc3339(row.since));
    }
    out + "\nWhat each means and what to do is in the handbook (docs/operating/handbook.md), section by section.\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::news::checks;
    use cluster::alarms::Book;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn settings() -> Mail {
        Mail {
            host: "mail".into(),
            port: 465,
            tls: true,
            user: String::new(),
            password: String::new(),
            sender: "skep@example.org".into(),
            from_name: "Storage".into(),
            to: "a@example.org, b@example.org".into(),
        }
    }

    #[test]
    fn a_mail_says_what_changed_first() {
        let raised = json!({"checks": {
            "OSD_DOWN": {"severity": "HEALTH_WARN", "summary": {"message": "1 osds down"}, "detail": [{"message": "osd.1 is down"}]},
            "PG_AVAILABILITY": {"severity": "HEALTH_ERR", "summary": {"message": "1 pg inactive"}},
        }});
        let found = checks(&raised);
        let news = News::of(&Book::default(), &found, 0);
        assert_eq!(subject(&news), "HEALTH_ERR (new: OSD_DOWN, PG_AVAILABILITY)");
        let said = text("f", &news, &found);
        assert!(
            said.contains("[WRN] OSD_DOWN: 1 osds down\n        osd.1 is down\n"),
            "{said}"
        );
        let book = Book {
            rows: news.book(),
            ..Book::default()
        };
        let ended = News::of(&book, &BTreeMap::new(), 60);
        assert_eq!(subject(&ended), "HEALTH_OK (ended: OSD_DOWN, PG_AVAILABILITY)");
        let still = News::of(&book, &found, 60);
        assert_eq!(subject(&still), "HEALTH_ERR (still: OSD_DOWN, PG_AVAILABILITY)");
        let whole = message(&settings(), "f", &news, &found).unwrap().formatted();
        let whole = String::from_utf8(whole).unwrap();
        assert!(whole.contains("To: a@example.org, b@example.org\r\n"), "{whole}");
        assert!(whole.contains("<skep@example.org>\r\n"), "{whole}");
    }

    #[test]
    fn addresses_that_are_none_are_said() {
        let wrong = Mail {
            to: "nobody".into(),
            ..settings()
        };
        let e = message(&wrong, "f", &News::default(), &BTreeMap::new()).unwrap_err();
        assert!(e.starts_with("smtp_destination: "), "{e}");
    }
}
