//! How things look: sizes and counts in words, and the pieces that pages are made of. What comes from outside goes through `maud`,
//! which escapes it.

use crate::cluster::Asked;
use crate::visit::Visit;
use crate::web::link;
use maud::{Markup, html};
use std::fmt::Display;

/// `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    scaled(n, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// `12`, `1.2 k`.
pub fn count(n: u64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T"])
        .trim_end()
        .to_string()
}

fn scaled(n: u64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    match unit {
        0 => format!("{n} {}", units[0]),
        _ if value < 10.0 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

/// `3 min`, of seconds.
pub fn span(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// `1.2 ms`, of seconds.
pub fn latency(secs: f64) -> String {
    match secs {
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Of a whole, in percent, from 0 to 1.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The time of day and the date of a stamp (`2026-11-26T07:25:16.352646+0000`), without its fractions.
pub fn stamp(text: &str) -> String {
    let cut = text.split('.').next().unwrap_or(text);
    cut.replacen('T', " ", 1)
}

/// How a state is coloured, besides what its words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Warn,
    Bad,
    Plain,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "tag good",
            Self::Warn => "tag warn",
            Self::Bad => "tag bad",
            Self::Plain => "tag",
        }
    }

    pub fn of_health(status: &str) -> Self {
        match status {
            "HEALTH_OK" => Self::Good,
            "HEALTH_WARN" => Self::Warn,
            _ => Self::Bad,
        }
    }
}

pub fn tag(tone: Tone, text: impl Display) -> Markup {
    html! { span class=(tone.class()) { (text.to_string()) } }
}

/// How full something is; `label` says of what, for those who do not see it.
pub fn fill(share: f64, label: &str) -> Markup {
    let value = (share * 100.0).clamp(0.0, 100.0);
    html! {
        meter min="0" max="100" low="75" high="85" optimum="0" value=(format!("{value:.1}")) aria-label=(label) { (percent(share)) }
    }
}

/// A part of a page with a heading.
pub fn section(id: &str, title: &str, body: &Markup) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            (body)
        }
    }
}

/// A table that may be wider than the screen: it is scrolled by itself, by keyboard, too.
pub fn table(caption: &str, heads: &[&str], rows: &[Markup]) -> Markup {
    html! {
        div.scroll role="region" aria-label=(format!("{caption}, a table")) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for head in heads { (head_cell(head)) } } }
                tbody { @for row in rows { tr { (row) } } }
            }
        }
    }
}

/// A heading that begins with `#` is of numbers; an empty one is of buttons.
fn head_cell(head: &str) -> Markup {
    match head.strip_prefix('#') {
        Some(head) => html! { th.num scope="col" { (head) } },
        None if head.is_empty() => html! { th scope="col" { span.quiet-label { "Actions" } } },
        None => html! { th scope="col" { (head) } },
    }
}

pub fn num(text: impl Display) -> Markup {
    html! { td.num { (text.to_string()) } }
}

pub fn cell(text: impl Display) -> Markup {
    html! { td { (text.to_string()) } }
}

pub fn head(body: &Markup) -> Markup {
    html! { th scope="row" { (body) } }
}

/// Under a list that was cut.
pub fn more(left: usize) -> Markup {
    html! { @if left > 0 { p.quiet { (left) " more are not shown." } } }
}

pub fn none(words: &str) -> Markup {
    html! { p.none { (words) } }
}

/// What was asked for, drawn; or why it is not there.
pub fn asked<T>(asked: &Asked<T>, draw: impl FnOnce(&T) -> Markup) -> Markup {
    match asked {
        Ok(value) => draw(value),
        Err(why) => html! { p.refused role="note" { "Not shown: " (why) } },
    }
}

/// What htmx fetches again while the page is open. Without JavaScript it stays as it was.
pub fn live(visit: &Visit, secs: u32, body: &Markup) -> Markup {
    let again = visit.here();
    html! {
        div #live hx-get=(again) hx-trigger=(format!("every {secs}s")) hx-select="#live" hx-swap="outerHTML" { (body) }
    }
}

/// A button that asks for an act.
pub fn button(visit: &Visit, label: &str, fields: &[(&str, &str)]) -> Markup {
    // By what a person knows it: not the ids that go with the names.
    let known = fields.iter().filter(|(name, _)| !name.ends_with("-id"));
    let id = format!("do-{}", known.map(|(_, v)| *v).collect::<Vec<_>>().join("-"));
    html! {
        form.inline method="post" action="/do" {
            (token(visit))
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button type="submit" id=(id) { (label) }
        }
    }
}

/// What every form has that changes something.
pub fn token(visit: &Visit) -> Markup {
    html! { input type="hidden" name="csrf" value=(visit.session.csrf); }
}

pub fn anchor(path: &str, query: &[(&str, &str)], text: &str) -> Markup {
    html! { a href=(link(path, query)) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_numbers() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(38 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "38 GiB"]
        );
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!([count(7), count(1200), count(25_000_000)], ["7", "1.2 k", "25 M"]);
        assert_eq!(
            [span(5), span(150), span(9000), span(200_000)],
            ["5 s", "2 min", "2 h", "2 days"]
        );
        assert_eq!(
            [latency(2.0), latency(0.0123), latency(0.000_05)],
            ["2.0 s", "12.3 ms", "50 µs"]
        );
        assert_eq!(stamp("2026-11-26T07:25:16.352646+0000"), "2026-11-26 07:25:16");
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let evil = "<script>alert(1)</script>\"'&";
        let all = [
            tag(Tone::Bad, evil),
            fill(0.5, evil),
            section("x", evil, &none(evil)),
            table(
                evil,
                &[evil, "#n", ""],
                &[cell(evil), num(evil), head(&none(evil))],
            ),
            asked::<()>(&Err(evil.into()), |()| none("")),
            anchor("/image", &[("name", evil)], evil),
        ];
        for markup in all {
            let text = markup.into_string();
            assert!(!text.contains("<script") && !text.contains("\"'&"), "{text}");
        }
    }
}
