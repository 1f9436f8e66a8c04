//! The overview: health in words, capacity, what clients do, recovery and when it ends.

use crate::cluster::{Peek, ask};
use crate::history::{EVERY, SAMPLES, Sample};
use crate::show::{self, Tone, bytes, count, fill, percent, section, span, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let client = visit.client();
    let (status, health, progress) = tokio::join!(
        ask(client, "status", &[]),
        ask(client, "health", &[("detail", "detail".into())]),
        ask(client, "progress json", &[]),
    );
    let body = html! {
        (section("health", "Health", &show::asked(&health, of_health)))
        (show::asked(&status, |s| html! {
            div.cards { (services(s)) (capacity(s)) (rates(s)) }
        }))
        (section("recovery", "Recovery", &show::asked(&status, |s| {
            let events = progress.as_ref().map_or(&[][..], |p| p.list("events"));
            recovery(s, events)
        })))
        (section("clients", "What clients do", &curves(&visit.recent, visit.now)))
    };
    Drawn::new("Overview", show::live(&visit, 5, &body))
}

fn of_health(health: &Value) -> Markup {
    let status = health.text("status");
    let words = match status {
        "HEALTH_OK" => "Everything is as it should be.",
        "HEALTH_WARN" => "Something wants attention: the checks say what.",
        _ => "Something is wrong, and data or service may be at risk: the checks say what.",
    };
    html! {
        p { (tag(Tone::of_health(status), status)) " " (words) }
        @if let Some(checks) = health["checks"].as_object() {
            @for (code, check) in checks { (of_check(code, check)) }
        }
    }
}

pub fn of_check(code: &str, check: &Value) -> Markup {
    let tone = Tone::of_health(check.text("severity"));
    let details = check.list("detail");
    let muted = check["muted"].as_bool() == Some(true);
    html! {
        div.check {
            p { (tag(tone, code)) " " (check["summary"].text("message")) @if muted { " (muted)" } }
            @if !details.is_empty() {
                details {
                    summary { (details.len()) @if details.len() == 1 { " line" } @else { " lines" } " of detail" }
                    ul { @for line in details { li { (line.text("message")) } } }
                }
            }
        }
    }
}

fn card(title: &str, body: &Markup) -> Markup {
    html! { section.card { h2 { (title) } (body) } }
}

fn services(status: &Value) -> Markup {
    let osds = &status["osdmap"];
    let mons = status.list("quorum_names").len() as u64;
    let all_mons = status["monmap"].number("num_mons");
    let files = status["fsmap"].number("up");
    let rows = [
        ("Monitors", format!("{mons} of {all_mons}"), mons == all_mons),
        (
            "OSDs up",
            format!("{} of {}", osds.number("num_up_osds"), osds.number("num_osds")),
            osds.number("num_up_osds") == osds.number("num_osds"),
        ),
        (
            "OSDs in",
            format!("{} of {}", osds.number("num_in_osds"), osds.number("num_osds")),
            osds.number("num_in_osds") == osds.number("num_osds"),
        ),
        (
            "Manager",
            on(&status["mgrmap"]),
            status["mgrmap"]["available"] == true,
        ),
        ("Metadata servers", files.to_string(), true),
    ];
    card(
        "Services",
        &html! {
            dl { @for (name, value, good) in rows {
                dt { (name) }
                dd { @if good { (value) } @else { (tag(Tone::Warn, value)) } }
            } }
        },
    )
}

fn on(mgr: &Value) -> String {
    let on = mgr["available"] == true;
    if on { "active" } else { "none" }.to_string()
}

fn capacity(status: &Value) -> Markup {
    let pgs = &status["pgmap"];
    let (used, total) = (pgs.number("bytes_used"), pgs.number("bytes_total"));
    let share = if total == 0 {
        0.0
    } else {
        used as f64 / total as f64
    };
    card(
        "Capacity",
        &html! {
            p.big { (percent(share)) " used" }
            (fill(share, "Used capacity"))
            dl {
                dt { "Used" } dd { (bytes(used)) " of " (bytes(total)) }
                dt { "Data" } dd { (bytes(pgs.number("data_bytes"))) " in " (count(pgs.number("num_objects"))) " objects" }
                dt { "Pools" } dd { (pgs.number("num_pools")) " with " (pgs.number("num_pgs")) " placement groups" }
            }
        },
    )
}

fn rates(status: &Value) -> Markup {
    let pgs = &status["pgmap"];
    card(
        "Clients now",
        &html! {
            dl {
                dt { "Read" } dd { (bytes(pgs.number("read_bytes_sec"))) "/s, " (count(pgs.number("read_op_per_sec"))) " op/s" }
                dt { "Write" } dd { (bytes(pgs.number("write_bytes_sec"))) "/s, " (count(pgs.number("write_op_per_sec"))) " op/s" }
            }
        },
    )
}

fn recovery(status: &Value, events: &[Value]) -> Markup {
    let pgs = &status["pgmap"];
    let shares = [("degraded", "degraded"), ("misplaced", "misplaced")].map(|(name, word)| {
        let (objects, total) = (
            pgs.number(&format!("{name}_objects")),
            pgs.number(&format!("{name}_total")),
        );
        (objects > 0).then(|| {
            let share = objects as f64 / total.max(1) as f64;
            format!(
                "{objects} of {total} copies of objects are {word} ({})",
                percent(share)
            )
        })
    });
    let unfound = pgs.number("unfound_objects");
    let pace = pgs.number("recovering_bytes_per_sec");
    let quiet = shares.iter().all(Option::is_none) && events.is_empty() && unfound == 0;
    html! {
        @if quiet { (show::none("All copies are where they belong. Nothing is being recovered.")) }
        @if unfound > 0 { p { (tag(Tone::Bad, "unfound")) " " (unfound) " objects have no copy that is there." } }
        @for line in shares.iter().flatten() { p { (line) "." } }
        @if pace > 0 { p { "Recovering at " (bytes(pace)) "/s, " (pgs.number("recovering_objects_per_sec")) " objects/s." } }
        @for event in events {
            @let done = event.float("progress").clamp(0.0, 1.0);
            div.event {
                p { (event.text("message")) ": " (percent(done)) ", " (remaining(event)) }
                progress max="100" value=(format!("{:.1}", done * 100.0)) aria-label=(event.text("message")) { (percent(done)) }
            }
        }
    }
}

fn remaining(event: &Value) -> String {
    match event["time_remaining"].as_f64() {
        Some(secs) => format!("done in about {} at the present pace", span(secs.max(0.0) as u64)),
        None => "the end is not known yet".to_string(),
    }
}

fn curves(recent: &[Sample], now: Duration) -> Markup {
    if recent.len() < 2 {
        return show::none("The curves begin when somebody has been logged in for ten seconds.");
    }
    let minutes = EVERY.as_secs() * SAMPLES as u64 / 60;
    html! {
        div.curves {
            (curve(recent, now, "Throughput", ("read", |s| s.read_bytes), ("write", |s| s.write_bytes), |n| bytes(n) + "/s"))
            (curve(recent, now, "Operations", ("read", |s| s.reads), ("write", |s| s.writes), |n| count(n) + " op/s"))
        }
        p.quiet { "The last " (minutes) " minutes, a sample every " (EVERY.as_secs()) " s." }
    }
}

type Line = (&'static str, fn(&Sample) -> u64);

fn curve(recent: &[Sample], now: Duration, title: &str, a: Line, b: Line, say: fn(u64) -> String) -> Markup {
    let peak = |line: Line| recent.iter().map(line.1).max().unwrap_or(0);
    let most = peak(a).max(peak(b));
    let last = |line: Line| recent.last().map_or(0, line.1);
    let words = format!(
        "{title}: {} {} now, {} at most; {} {} now, {} at most",
        a.0,
        say(last(a)),
        say(peak(a)),
        b.0,
        say(last(b)),
        say(peak(b))
    );
    html! {
        figure {
            figcaption {
                strong { (title) }
                @for (line, class) in [(a, "key-a"), (b, "key-b")] {
                    " " span.key { span class=(class) aria-hidden="true" {} (line.0) " " (say(last(line))) ", peak " (say(peak(line))) }
                }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(words) preserveAspectRatio="none" {
                @for part in 0..=4 {
                    @let y = HEIGHT * f64::from(part) / 4.0;
                    line.grid x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                }
                polyline.line-a points=(points(recent, now, a.1, most)) {}
                polyline.line-b points=(points(recent, now, b.1, most)) {}
            }
        }
    }
}

/// Time from the left to now, values from below; the highest touches the top.
fn points(recent: &[Sample], now: Duration, of: fn(&Sample) -> u64, most: u64) -> String {
    let all = EVERY.as_secs_f64() * SAMPLES as f64;
    let point = |s: &Sample| {
        let x = WIDTH * (1.0 - now.saturating_sub(s.at).as_secs_f64() / all);
        let y = (HEIGHT - 2.0) * (1.0 - of(s) as f64 / most.max(1) as f64) + 1.0;
        format!("{x:.1},{y:.1}")
    };
    recent.iter().map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_stay_in_their_frame() {
        let samples: Vec<Sample> = (0..SAMPLES as u64)
            .map(|n| Sample {
                at: EVERY * n as u32,
                reads: n % 7,
                ..Sample::default()
            })
            .collect();
        let text = points(&samples, EVERY * (SAMPLES as u32 - 1), |s| s.reads, 6);
        for pair in text.split(' ') {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!(
                (0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y),
                "{pair}"
            );
        }
        assert!(points(&samples, EVERY, |s| s.writes, 0).contains(",119.0"));
    }

    #[test]
    fn checks_are_escaped() {
        let check = serde_json::json!({"severity": "HEALTH_WARN", "summary": {"message": "<b>x</b>"},
            "detail": [{"message": "<i>"}], "muted": false});
        let text = of_check("<CODE>", &check).into_string();
        assert!(
            !text.contains("<b>") && !text.contains("<i>") && !text.contains("<CODE>"),
            "{text}"
        );
    }
}
