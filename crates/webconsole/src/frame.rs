//! The frame around each page, and the way in.

use crate::pages::PAGES;
use crate::show::token;
use crate::statics::{HTMX_PATH, ICON_PATH, STYLE_PATH};
use crate::visit::{Drawn, Visit};
use maud::{DOCTYPE, Markup, html};

/// Of htmx: nothing that a strict policy forbids, and no copies of pages in the browser.
const HTMX_CONFIG: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"historyCacheSize":0}"#;

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " - Skep" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX_CONFIG);
                link rel="icon" href=(ICON_PATH);
                link rel="stylesheet" href=(STYLE_PATH);
                script src=(HTMX_PATH) defer {}
            }
            body { (body) }
        }
    }
}

/// A page in its frame: who is logged in, where one can go, what the last act did.
pub fn frame(visit: &Visit, drawn: &Drawn) -> Markup {
    // A part that refreshes itself shows no notice, and leaves it to the page that does.
    let notice = match visit.by_itself {
        true => None,
        false => visit.session.of.notice.borrow_mut().take(),
    };
    let fsid = visit.client().fsid().map(|f| f.to_string()).unwrap_or_default();
    let may = if visit.rights.write {
        "may change things"
    } else {
        "reads only"
    };
    let of_image = visit.path == "/image";
    document(
        &drawn.title,
        &html! {
            a.skip href="#main" { "Skip to content" }
            header {
                p.brand { a href="/" { "Skep" } " " span.fsid title="The cluster's id" { (fsid) } }
                div.who {
                    span { (visit.session.entity) " " span.may { (may) } }
                    form.inline method="post" action="/logout" {
                        (token(visit))
                        button type="submit" { "Log out" }
                    }
                }
            }
            nav aria-label="Pages" {
                ul {
                    @for page in PAGES.iter().filter(|p| !p.name.is_empty() && (p.path != "/buckets" || visit.buckets.is_some())) {
                        @let here = page.path == visit.path || (of_image && page.path == "/images");
                        li { a href=(page.path) aria-current=[here.then_some("page")] { (page.name) } }
                    }
                }
            }
            main #main tabindex="-1" {
                h1 { (drawn.title) }
                @if let Some(notice) = notice { p.notice role="status" { (notice) } }
                (drawn.body)
            }
        },
    )
}

/// The way in. `said`: why the last attempt failed.
pub fn login(entity: &str, said: &str) -> Markup {
    document(
        "Log in",
        &html! {
            main.login #main {
                h1 { "Skep console" }
                p { "Log in with an entity of the cluster and its key, as in its keyring. What it may do here is what its capabilities say." }
                @if !said.is_empty() { p.refused role="alert" { (said) } }
                form.stack method="post" action="/login" {
                    label for="entity" { "Entity" }
                    input #entity name="entity" value=(if entity.is_empty() { "client.admin" } else { entity })
                        autocomplete="username" autocapitalize="none" spellcheck="false" maxlength="128" required;
                    label for="key" { "Key" }
                    input #key name="key" type="password" autocomplete="current-password" maxlength="256" required;
                    button.main type="submit" { "Log in" }
                }
            }
        },
    )
}
