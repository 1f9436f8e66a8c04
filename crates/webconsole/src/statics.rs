//! Files that go with the program. Third parties' have their licence beside them (static/htmx-LICENSE.txt).

use crate::web::{self, Answer};
use hyper::{StatusCode, header};

/// htmx 2.0.11, 0BSD, as its package has it.
const HTMX: &str = include_str!("../static/htmx-2.0.11.min.js");
const STYLE: &str = include_str!("../static/console.css");
const ICON: &str = include_str!("../static/icon.svg");

pub const HTMX_PATH: &str = "/static/htmx-2.0.11.min.js";
pub const STYLE_PATH: &str = concat!("/static/console-", env!("CARGO_PKG_VERSION"), ".css");
pub const ICON_PATH: &str = "/static/icon.svg";

pub fn file(path: &str) -> Option<Answer> {
    let (kind, text) = match path {
        HTMX_PATH => ("text/javascript; charset=utf-8", HTMX),
        STYLE_PATH => ("text/css; charset=utf-8", STYLE),
        ICON_PATH => ("image/svg+xml", ICON),
        _ => return None,
    };
    let mut out = web::answer(StatusCode::OK, kind, text);
    web::put(&mut out, header::CACHE_CONTROL, "max-age=3600");
    Some(out)
}
