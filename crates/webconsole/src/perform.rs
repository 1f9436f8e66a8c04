//! An act is carried out: after the right to it, and the second page where there is one.

use crate::acts::{self, Act, Step};
use crate::cluster::order;
use crate::images;
use crate::show::token;
use crate::visit::{Drawn, Visit};
use crate::web::Fields;
use hyper::StatusCode;
use maud::{Markup, html};

pub enum Done {
    /// The browser goes there.
    To(String),
    Page(Drawn),
}

pub async fn take(visit: &Visit, form: &Fields) -> Done {
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
    let done = match &act.step {
        Step::Order(command) => order(visit.client(), command).await,
        Step::Image(place, step, seen) => images::perform(visit.client(), place, step, seen)
            .await
            .map(|()| String::new()),
    };
    let entity = &visit.session.entity;
    match done {
        Ok(said) => {
            tracing::info!("console: {entity}: {}", act.command);
            let said = if said.is_empty() {
                String::new()
            } else {
                format!(" ({said})")
            };
            *visit.session.of.notice.borrow_mut() = Some(format!("Done: {}{said}", act.command));
            Done::To(act.back)
        }
        Err(why) => {
            tracing::info!("console: {entity}: {}: {why}", act.command);
            let words = format!("It was not done: {why}");
            Done::Page(Drawn::failure(&act.title, &words, &act.back))
        }
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
