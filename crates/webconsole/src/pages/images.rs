//! The images of a pool and namespace, what is in the trash there, and a form for a new one.

use crate::acts::Place;
use crate::cluster::{Asked, ask};
use crate::images::{self, Listed, Listing, OPEN_MAX, Trashed};
use crate::pages::pools::rbd_pools;
use crate::show::{self, anchor, bytes, num, section, span, token};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use std::rc::Rc;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let pools = ask(visit.client(), "osd pool ls", &[("detail", "detail".into())]).await;
    let names = match &pools {
        Ok(pools) => rbd_pools(pools),
        Err(why) => return Drawn::new("Images", show::asked::<()>(&Err(why.clone()), |()| html! {})),
    };
    let pool = match visit.query.get("pool") {
        "" => names.first().cloned().unwrap_or_default(),
        named => named.to_string(),
    };
    if pool.is_empty() {
        let words = "No pool is for images yet: ceph osd pool create NAME, then rbd pool init NAME.";
        return Drawn::new("Images", show::none(words));
    }
    let place = Place {
        pool,
        namespace: visit.query.get("namespace").to_string(),
    };
    let first: usize = visit.query.get("first").parse().unwrap_or(0);
    let title = format!("Images in {}", place_name(&place));
    Drawn::new(title, of_place(&visit, &names, &place, first).await)
}

fn place_name(place: &Place) -> String {
    match place.namespace.as_str() {
        "" => place.pool.clone(),
        ns => format!("{}/{ns}", place.pool),
    }
}

async fn of_place(visit: &Visit, pools: &[String], place: &Place, first: usize) -> Markup {
    let io = images::io(visit.client(), place).await;
    let (list, trash, namespaces) = match &io {
        Err(why) => (Err(why.clone()), Err(why.clone()), Vec::new()),
        Ok(io) => {
            let (list, trash, namespaces) = tokio::join!(
                images::list(io, first),
                images::trashed(io),
                rbd::directory::namespaces(io)
            );
            (list, trash, namespaces.unwrap_or_default())
        }
    };
    html! {
        (places(pools, place, &namespaces))
        (section("images", "Images", &show::asked(&list, |l| table(place, l, first))))
        @if visit.rights.write { (section("new", "New image", &create(visit, place))) }
        (section("trash", "Trash", &in_trash(visit, place, &trash)))
    }
}

/// Where else to look.
fn places(pools: &[String], place: &Place, namespaces: &[String]) -> Markup {
    let choice = |words: &str, here: bool, query: &[(&str, &str)]| {
        html! { li { a href=(crate::web::link("/images", query)) aria-current=[here.then_some("true")] { (words) } } }
    };
    html! {
        nav.places aria-label="Pools and namespaces" {
            p { "Pool" }
            ul { @for pool in pools { (choice(pool, *pool == place.pool, &[("pool", pool)])) } }
            @if !namespaces.is_empty() {
                p { "Namespace" }
                ul {
                    (choice("(default)", place.namespace.is_empty(), &[("pool", &place.pool)]))
                    @for ns in namespaces.iter().take(OPEN_MAX) { (choice(ns, *ns == place.namespace, &[("pool", &place.pool), ("namespace", ns)])) }
                }
                (show::more(namespaces.len().saturating_sub(OPEN_MAX)))
            }
        }
    }
}

fn table(place: &Place, list: &Listing, first: usize) -> Markup {
    if list.total == 0 {
        return show::none("There are no images here.");
    }
    let rows: Vec<Markup> = list.shown.iter().map(|l| row(place, l)).collect();
    let next = first.saturating_add(OPEN_MAX);
    let (pool, ns) = (place.pool.as_str(), place.namespace.as_str());
    let to = |first: usize, words: &str| {
        anchor(
            "/images",
            &[("pool", pool), ("namespace", ns), ("first", &first.to_string())],
            words,
        )
    };
    html! {
        @if rows.is_empty() { (show::none("The list ends before that.")) } @else {
            (show::table("Images", &["Image", "#Size", "#Snapshots", "Clone", "Features"], &rows))
        }
        @if list.total > OPEN_MAX || first > 0 {
            p { (list.total) " images. "
                @if first > 0 { (to(first.min(list.total).saturating_sub(OPEN_MAX), "Previous")) " " }
                @if next < list.total { (to(next, "Next")) }
            }
        }
    }
}

fn row(place: &Place, listed: &Listed) -> Markup {
    let name = html! { a href=(place.image_link(&listed.name)) { (listed.name) } };
    html! {
        (show::head(&name))
        @match &listed.header {
            Some(h) => {
                (num(bytes(h.size)))
                (num(images::users_snaps(h).len()))
                (show::cell(if h.parent.is_some() { "yes" } else { "no" }))
                (show::cell(images::features(h.features)))
            }
            None => { td colspan="4" { "cannot be read" } }
        }
    }
}

fn place_fields(place: &Place) -> Markup {
    html! {
        input type="hidden" name="pool" value=(place.pool);
        input type="hidden" name="namespace" value=(place.namespace);
    }
}

fn create(visit: &Visit, place: &Place) -> Markup {
    html! {
        form.row method="post" action="/do" {
            (token(visit)) (place_fields(place))
            input type="hidden" name="act" value="image-create";
            div { label for="new-name" { "Name" } input #new-name name="image" maxlength="255" required; }
            div { label for="new-size" { "Size" } input #new-size name="size" placeholder="20G" maxlength="20" required; }
            button type="submit" { "Create image" }
        }
    }
}

fn in_trash(visit: &Visit, place: &Place, trash: &Asked<(Vec<Trashed>, usize)>) -> Markup {
    show::asked(trash, |(trash, left)| {
        if trash.is_empty() {
            return show::none("The trash is empty.");
        }
        let mut heads = vec!["Image", "Id", "There for"];
        if visit.rights.write {
            heads.push("");
        }
        let rows: Vec<Markup> = trash
            .iter()
            .map(|Trashed { id, name, since }| {
                html! {
                    (show::head(&html! { (name) }))
                    (show::cell(id))
                    (show::cell(span(visit.wall.as_secs().saturating_sub(*since))))
                    @if visit.rights.write { td { (restore(visit, place, id, name)) } }
                }
            })
            .collect();
        html! { (show::table("Images in the trash", &heads, &rows)) (show::more(*left)) }
    })
}

fn restore(visit: &Visit, place: &Place, id: &str, name: &str) -> Markup {
    let field = format!("restore-{id}");
    html! {
        form.row method="post" action="/do" {
            (token(visit)) (place_fields(place))
            input type="hidden" name="act" value="trash-restore";
            input type="hidden" name="id" value=(id);
            div { label for=(field) { "Name" } input id=(field) name="image" value=(name) maxlength="255" required; }
            button type="submit" { "Restore " (name) }
        }
    }
}
