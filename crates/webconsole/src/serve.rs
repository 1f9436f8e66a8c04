//! The console as a whole: which request is answered by what, and the checks that stand before.
//!
//! Bounds: a page within [`PAGE_WITHIN`], [`PAGES`] at once; [`ACTS`] under way; a form of [`FORM_BYTES`] within [`FORM_WITHIN`]; connections: `connections`; logins: `login`; sessions: `sessions`.

use crate::cluster::{Peek, ask};
use crate::history::{EVERY, History, Sample};
use crate::login::{Door, Visitor, is_current, rights_of, said_name};
use crate::sessions::{LIFE_MAX, Session, Sessions};
use crate::settings::Settings;
use crate::visit::{Drawn, Visit};
use crate::web::{self, Answer, Fields};
use crate::{connections, frame, pages, perform, statics};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, header};
use io::socket::Acceptor;
use io::task;
use maud::{Markup, html};
use net::tls::Certificate;
use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Pages that are drawn at once; others wait. Beside that: [`crate::login::PAGES_AT_ONCE`] of a session.
const PAGES: usize = 16;
/// What a page may take, with its wait.
const PAGE_WITHIN: Duration = Duration::from_secs(30);
/// Acts under way, also those that nobody waits for any more.
const ACTS: usize = 16;
const FORM_BYTES: usize = 32 << 10;
const FORM_WITHIN: Duration = Duration::from_secs(20);

pub struct Console {
    settings: Settings,
    sessions: RefCell<Sessions<Visitor>>,
    door: Door,
    history: RefCell<History>,
    pages: Semaphore,
    acts: Arc<Semaphore>,
}

/// Serves until `stop` turns true.
pub async fn serve(
    settings: Settings,
    acceptor: Acceptor,
    certificate: Option<Certificate>,
    stop: watch::Receiver<bool>,
) {
    let console = Rc::new(Console {
        settings,
        sessions: RefCell::default(),
        door: Door::default(),
        history: RefCell::default(),
        pages: Semaphore::new(PAGES),
        acts: Arc::new(Semaphore::new(ACTS)),
    });
    let watching = task::spawn_local(watch_rates(console.clone()));
    let answer = {
        let console = console.clone();
        move |request, from| answer(console.clone(), request, from)
    };
    connections::serve(acceptor, certificate, answer, stop).await;
    watching.abort();
    // Their clients end with them.
    console.sessions.borrow_mut().retain(|_| false);
}

/// What clients do, seen by somebody who has logged in; and an end for sessions whose time or key is over.
async fn watch_rates(console: Rc<Console>) {
    loop {
        task::sleep(EVERY).await;
        console.end_sessions();
        let Some(session) = console.sessions.borrow().latest() else {
            continue;
        };
        let asked = task::timeout(EVERY, ask(&session.of.client, "status", &[])).await;
        if let Ok(Ok(status)) = asked {
            let rates = &status["pgmap"];
            console.history.borrow_mut().push(Sample {
                at: console.now(),
                read_bytes: rates.number("read_bytes_sec"),
                write_bytes: rates.number("write_bytes_sec"),
                reads: rates.number("read_op_per_sec"),
                writes: rates.number("write_op_per_sec"),
            });
        }
    }
}

fn plain(status: StatusCode, words: impl Into<String>) -> Answer {
    web::answer(status, web::TEXT, words.into() + "\n")
}

fn page(status: StatusCode, markup: Markup) -> Answer {
    web::answer(status, "text/html; charset=utf-8", markup.into_string())
}

async fn answer(console: Rc<Console>, request: Request<Incoming>, from: IpAddr) -> Answer {
    let (parts, body) = request.into_parts();
    let host = parts.headers.get(header::HOST).and_then(|h| h.to_str().ok());
    let host = host.map(str::to_string);
    let settings = &console.settings;
    if !web::is_ours(host.as_deref(), settings.listen, &settings.hosts) {
        let words = "The console does not answer to this name: call it localhost, or start it with --console-host NAME.";
        return plain(StatusCode::MISDIRECTED_REQUEST, words);
    }
    match parts.method {
        Method::GET | Method::HEAD => match statics::file(parts.uri.path()) {
            Some(file) => file,
            None => console.show(&parts, from).await,
        },
        Method::POST => {
            if !web::is_from_us(&parts.headers, host.as_deref().unwrap_or_default()) {
                return plain(
                    StatusCode::FORBIDDEN,
                    "Changes are taken from the console's own pages alone.",
                );
            }
            let read = task::timeout(FORM_WITHIN, Limited::new(body, FORM_BYTES).collect()).await;
            let form = match read {
                Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "The form did not come in time."),
                Ok(Err(_)) => {
                    return plain(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "The form is too long, or was cut off.",
                    );
                }
                Ok(Ok(body)) => Fields::parse(&body.to_bytes()),
            };
            console.take(&parts, &form, from).await
        }
        _ => plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "Only GET and POST are answered here.",
        ),
    }
}

impl Console {
    fn now(&self) -> Duration {
        self.settings.clock.monotonic()
    }

    fn cookie_name(&self) -> &'static str {
        match self.settings.tls {
            Some(_) => "__Host-skep-console",
            None => "skep-console",
        }
    }

    fn end_sessions(&self) {
        let mut sessions = self.sessions.borrow_mut();
        sessions.end_old(self.now());
        sessions.retain(|s| is_current(&self.settings.cluster, &s.entity, &s.of));
    }

    /// Ends the session of the cookie that came, if it is one of ours.
    fn end_own(&self, parts: &Parts) {
        if let Some(cookie) = web::cookie(&parts.headers, self.cookie_name()) {
            let mut sessions = self.sessions.borrow_mut();
            // With its secret: a name alone ends nothing.
            if sessions.find(cookie, self.now(), false).is_some() {
                sessions.end(cookie);
            }
        }
    }

    fn session(&self, parts: &Parts) -> Option<Rc<Session<Visitor>>> {
        let cookie = web::cookie(&parts.headers, self.cookie_name())?;
        let awake = !parts.headers.contains_key("hx-request");
        self.sessions.borrow_mut().find(cookie, self.now(), awake)
    }

    /// Who asks, and what he may do now. None: nobody who is logged in, or not any more.
    fn visit(&self, parts: &Parts, from: IpAddr) -> Option<Visit> {
        let session = self.session(parts)?;
        let rights = rights_of(&self.settings.cluster, &session.entity, &session.of, from)?;
        let map = self.settings.cluster.handle.osdmap();
        let gateway = self.settings.buckets.clone();
        Some(Visit {
            rights,
            path: parts.uri.path().to_string(),
            query: Fields::parse(parts.uri.query().unwrap_or_default().as_bytes()),
            buckets: gateway.filter(|b| map.pool_by_name(b.pool()).is_some()),
            by_itself: parts.headers.contains_key("hx-request"),
            recent: self.history.borrow().recent(self.now()),
            now: self.now(),
            wall: self.settings.clock.wall(),
            session,
        })
    }

    async fn show(&self, parts: &Parts, from: IpAddr) -> Answer {
        let path = parts.uri.path();
        if path == "/login" {
            return page(StatusCode::OK, frame::login("", ""));
        }
        let Some(visit) = self.visit(parts, from) else {
            return outside(parts);
        };
        let visit = Rc::new(visit);
        if !visit.rights.read {
            let words = format!(
                "{} may not read the cluster's maps any more.",
                visit.session.entity
            );
            return page(
                StatusCode::FORBIDDEN,
                frame::frame(&visit, &Drawn::refusal(&words)),
            );
        }
        match pages::find(path) {
            Some(spec) => {
                let places = [&visit.session.of.pages, &self.pages];
                let drawn = in_time(PAGE_WITHIN, places, (spec.draw)(visit.clone())).await;
                page(drawn.status, frame::frame(&visit, &drawn))
            }
            None => {
                let drawn = Drawn::missing("There is no such page.");
                page(drawn.status, frame::frame(&visit, &drawn))
            }
        }
    }

    async fn take(&self, parts: &Parts, form: &Fields, from: IpAddr) -> Answer {
        let path = parts.uri.path();
        if path == "/login" {
            return self.log_in(parts, form, from).await;
        }
        let Some(visit) = self.visit(parts, from) else {
            return outside(parts);
        };
        if !visit.session.has_token(form.get("csrf")) {
            let words = "This form is not from a page of this session: go back and load the page again.";
            return page(
                StatusCode::FORBIDDEN,
                frame::frame(&visit, &Drawn::refusal(words)),
            );
        }
        match path {
            "/logout" => self.log_out(parts),
            "/do" => {
                let Ok(place) = self.acts.clone().try_acquire_owned() else {
                    let words = format!(
                        "{ACTS} changes are under way: this one was not begun. Try again in a while."
                    );
                    let drawn = Drawn {
                        status: StatusCode::SERVICE_UNAVAILABLE,
                        ..Drawn::refusal(&words)
                    };
                    return page(drawn.status, frame::frame(&visit, &drawn));
                };
                let (visit, form) = (Rc::new(visit), form.clone());
                // A task of its own: an act that has begun is not left when the browser goes.
                let act = task::spawn_local(async move {
                    match perform::take(&visit, &form, from, place).await {
                        perform::Done::To(path) => web::see_other(&path),
                        perform::Done::Page(drawn) => page(drawn.status, frame::frame(&visit, &drawn)),
                    }
                });
                act.await.unwrap_or_else(|_| web::broken())
            }
            _ => plain(StatusCode::NOT_FOUND, "Nothing is changed there."),
        }
    }

    async fn log_in(&self, parts: &Parts, form: &Fields, from: IpAddr) -> Answer {
        let (name, key) = (form.get("entity"), form.get("key"));
        let entered = self
            .door
            .enter(&self.settings.cluster, (name, key), (from, self.now()))
            .await;
        let (entity, visitor) = match entered {
            Ok(entered) => entered,
            Err(why) => {
                let line = format_args!("console: {from} is not let in as {}: {why}", said_name(name));
                io::log::refused(self.now(), line);
                return page(StatusCode::FORBIDDEN, frame::login(name, &why));
            }
        };
        tracing::info!("console: {from} has logged in as {entity}");
        self.end_own(parts);
        let now = self.now();
        let cookie = self
            .sessions
            .borrow_mut()
            .begin(entity, visitor, now, &*self.settings.random);
        let mut out = web::see_other("/");
        web::put(&mut out, header::SET_COOKIE, &self.cookie(&cookie, LIFE_MAX));
        out
    }

    /// The session's client ends with the last who uses it: an act that goes on is not cut.
    fn log_out(&self, parts: &Parts) -> Answer {
        self.end_own(parts);
        let mut out = web::see_other("/login");
        web::put(&mut out, header::SET_COOKIE, &self.cookie("", Duration::ZERO));
        out
    }

    fn cookie(&self, value: &str, age: Duration) -> String {
        let secure = if self.settings.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            self.cookie_name(),
            age.as_secs()
        )
    }
}

/// A page, once there is a place for it in each of `places`; or one that says that it took too long.
async fn in_time(within: Duration, places: [&Semaphore; 2], draw: impl Future<Output = Drawn>) -> Drawn {
    let drawn = async {
        let _own = places[0].acquire().await;
        let _all = places[1].acquire().await;
        draw.await
    };
    let drawn = task::timeout(within, drawn).await;
    drawn.unwrap_or_else(|_| {
        let words = format!(
            "The page was not ready within {} s: the cluster answers slowly, or many pages are asked for at once.",
            within.as_secs()
        );
        Drawn {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Drawn::new("Not ready", html! { p.refused role="alert" { (words) } })
        }
    })
}

/// Nobody who is logged in: pages lead to the login, and what refreshes itself is told to go there.
fn outside(parts: &Parts) -> Answer {
    if parts.headers.contains_key("hx-request") {
        let mut out = plain(StatusCode::UNAUTHORIZED, "The session is over.");
        web::put(&mut out, header::HeaderName::from_static("hx-redirect"), "/login");
        return out;
    }
    web::see_other("/login")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_place_and_an_end() {
        let role = task::spawn_role("test", || async {
            let (own, all) = (Semaphore::new(2), Semaphore::new(1));
            let fine = || async { Drawn::new("Fine", html! {}) };
            let long = Duration::from_secs(600);
            let short = Duration::from_millis(1);
            assert_eq!(in_time(long, [&own, &all], fine()).await.status, StatusCode::OK);
            let late = in_time(short, [&own, &all], std::future::pending()).await;
            assert_eq!(late.status, StatusCode::SERVICE_UNAVAILABLE);
            let taken = all.acquire().await;
            let full = in_time(short, [&own, &all], fine()).await;
            assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
            drop(taken);
            assert_eq!(in_time(long, [&own, &all], fine()).await.status, StatusCode::OK);
        });
        role.unwrap().join().unwrap();
    }
}
