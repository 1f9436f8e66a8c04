//! An act is carried out: after the right to it, and the second page where there is one.

use crate::acts::{self, Act, Step};
use crate::cluster::{Trouble, order};
use crate::images;
use crate::show::token;
use crate::visit::{Drawn, Visit};
use crate::web::Fields;
use hyper::StatusCode;
use maud::{Markup, html};
use std::net::IpAddr;
use tokio::sync::OwnedSemaphorePermit;

pub enum Done {
    /// The browser goes there.
    To(String),
    Page(Drawn),
}

/// `place` is given back when the act has ended, whoever still waits for it.
pub async fn take(visit: &Visit, form: &Fields, from: IpAddr, place: OwnedSemaphorePermit) -> Done {
    if !visit.rights.write {
        let words = format!(
            "{} may not change anything here: its mon capabilities would have to allow rw.",
            visit.session.entity
        );
        return Done::Page(Drawn::refusal(&words));
    }
    let act = match acts::read(form) {
        Ok(act) => act,
        Err(why) => {
            return Done::Page(Drawn {
                status: StatusCode::BAD_REQUEST,
                ..Drawn::refusal(&why)
            });
        }
    };
    if act.confirm && form.get("sure") != "yes" {
        return Done::Page(Drawn::new(act.title.clone(), are_you_sure(visit, form, &act)));
    }
    let log = format!("console: {} from {from}: {}", visit.session.entity, act.command);
    let done = match &act.step {
        Step::Order(command) => {
            let done = order(visit.client(), command).await;
            note(&log, done.as_ref().err());
            done
        }
        Step::Image(at, step, seen) => {
            let ended = move |done: &Result<(), Trouble>| {
                note(&log, done.as_ref().err());
                drop(place);
            };
            let done = images::perform(visit.client(), (at, step, seen), ended).await;
            done.map(|()| String::new())
        }
    };
    match done {
        Ok(said) => {
            let said = if said.is_empty() {
                String::new()
            } else {
                format!(" ({said})")
            };
            *visit.session.of.notice.borrow_mut() = Some(format!("Done: {}{said}", act.command));
            Done::To(act.back)
        }
        Err(trouble) => Done::Page(Drawn {
            status: status(&trouble),
            ..Drawn::failure(&act.title, &trouble.to_string(), &act.back)
        }),
    }
}

/// At the end of an act, whoever still waits for it.
fn note(log: &str, trouble: Option<&Trouble>) {
    match trouble {
        None => tracing::info!("{log}"),
        Some(trouble) => tracing::info!("{log}: {trouble}"),
    }
}

const fn status(trouble: &Trouble) -> StatusCode {
    match trouble {
        Trouble::NotDone(_) => StatusCode::CONFLICT,
        Trouble::Unknown(_) => StatusCode::GATEWAY_TIMEOUT,
        Trouble::GoesOn(_) => StatusCode::ACCEPTED,
    }
}

/// The same form again, with what it means.
fn are_you_sure(visit: &Visit, form: &Fields, act: &Act) -> Markup {
    let fields = form.all().filter(|(name, _)| !matches!(*name, "csrf" | "sure"));
    html! {
        p { (act.effect) }
        p { "The same by command: " code { (act.command) } }
        form.stack method="post" action="/do" {
            (token(visit))
            input type="hidden" name="sure" value="yes";
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            div.choice {
                button.main type="submit" id="sure" { (act.title) }
                a href=(act.back) { "Leave it as it is" }
            }
        }
    }
}
