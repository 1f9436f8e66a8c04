//! One request of somebody who has logged in, and what is answered: a page without its frame.

use crate::buckets::Buckets;
use crate::history::Sample;
use crate::login::Visitor;
use crate::rights::Rights;
use crate::sessions::Session;
use crate::web::{Fields, link};
use client::Client;
use hyper::StatusCode;
use maud::{Markup, html};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// One request of somebody who has logged in.
#[derive(Debug)]
pub struct Visit {
    pub session: Rc<Session<Visitor>>,
    pub rights: Rights,
    pub path: String,
    pub query: Fields,
    /// Where there is an object gateway, or was one.
    pub buckets: Option<Arc<dyn Buckets>>,
    /// A page refreshes itself; nobody has clicked.
    pub by_itself: bool,
    pub recent: Vec<Sample>,
    /// On the clock of the samples, and since 1970.
    pub now: Duration,
    pub wall: Duration,
}

impl Visit {
    pub fn client(&self) -> &Client {
        &self.session.of.client
    }

    /// This page, as it was asked for.
    pub fn here(&self) -> String {
        link(&self.path, &self.query.all().collect::<Vec<_>>())
    }
}

/// A page without its frame.
#[derive(Debug)]
pub struct Drawn {
    pub status: StatusCode,
    pub title: String,
    pub body: Markup,
}

impl Drawn {
    pub fn new(title: impl Into<String>, body: Markup) -> Self {
        Self {
            status: StatusCode::OK,
            title: title.into(),
            body,
        }
    }

    pub fn refusal(words: &str) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            ..Self::new("Refused", html! { p.refused role="alert" { (words) } })
        }
    }

    pub fn missing(words: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            ..Self::new("Not found", html! { p.refused { (words) } })
        }
    }

    /// An act that did not happen, or not wholly; `back` is where it was asked for.
    pub fn failure(title: &str, words: &str, back: &str) -> Self {
        let body = html! {
            p.refused role="alert" { (words) }
            p { a href=(back) { "Back" } }
        };
        Self {
            status: StatusCode::CONFLICT,
            ..Self::new(title, body)
        }
    }
}
