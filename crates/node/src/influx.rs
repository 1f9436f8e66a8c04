//! Figures as InfluxDB's line protocol, which InfluxDB and Telegraf take: `measurement,tag=text,... value=number`.
//!
//! Names and tags are those of Prometheus' format; no times: who takes them knows when.

/// From our own page in Prometheus' format.
pub(crate) fn lines(page: &str) -> String {
    let figures = page.lines().filter(|l| !l.starts_with('#'));
    figures.filter_map(line).collect()
}

fn line(figure: &str) -> Option<String> {
    let (series, value) = figure.rsplit_once(' ')?;
    // There is no such number in line protocol.
    if !value.parse::<f64>().ok()?.is_finite() {
        return None;
    }
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let mut out = name.to_string();
    let mut rest = labels.trim_end_matches('}');
    while let Some((label, from)) = rest.split_once("=\"") {
        let (text, after) = quoted(from);
        // A tag without text is not allowed.
        if !text.is_empty() {
            out.push_str(&format!(",{label}={}", escaped(&text)));
        }
        rest = after.trim_start_matches(',');
    }
    out.push_str(&format!(" value={value}\n"));
    Some(out)
}

/// A label's text, and what follows its closing quote.
fn quoted(from: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = from.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, &from[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, c)) => text.push(c),
                None => break,
            },
            c => text.push(c),
        }
    }
    (text, "")
}

/// As tags want it. They cannot hold an end of line, nor end with a backslash.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.trim_end_matches('\\').chars() {
        match c {
            '\n' => out.push_str("\\ "),
            ',' | '=' | ' ' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_a_line() {
        let page = concat!(
            "# TYPE ceph_health_status gauge\nceph_health_status 1\n",
            "ceph_rbd_write_ops{pool=\"a b\",namespace=\"\",image=\"x,\\\"y\\\"}=\\\\z\"} 64\n",
            "ceph_osd_weight{ceph_daemon=\"osd.0\"} 0.5\nceph_odd NaN\n",
        );
        let want = concat!(
            "ceph_health_status value=1\n",
            "ceph_rbd_write_ops,pool=a\\ b,image=x\\,\"y\"}\\=\\z value=64\n",
            "ceph_osd_weight,ceph_daemon=osd.0 value=0.5\n",
        );
        assert_eq!(lines(page), want);
        assert_eq!(escaped("end\\"), "end");
        assert_eq!(escaped("two\nlines"), "two\\ lines");
    }
}
