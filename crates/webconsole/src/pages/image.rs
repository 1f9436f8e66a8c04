//! One image: its figures, who has it open, its snapshots, and forms for what can be done with it.

use crate::acts::Place;
use crate::cluster::ask;
use crate::images::{self, Shown};
use crate::pages::pools::rbd_pools;
use crate::show::{self, Tone, anchor, button, bytes, num, section, tag, token};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use rbd::header::{PROTECTED, Snap};
use std::rc::Rc;

/// Snapshots of a page.
const SNAPS_MAX: usize = 100;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let place = Place {
        pool: visit.query.get("pool").to_string(),
        namespace: visit.query.get("namespace").to_string(),
    };
    let name = visit.query.get("image").to_string();
    let title = format!("Image {}", place.spec(&name));
    let shown = match images::io(visit.client(), &place).await {
        Ok(io) => images::show(visit.client(), &io, &name).await,
        Err(why) => Err(why),
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(why) => {
            let words = format!("The image cannot be shown: {why}");
            return Drawn {
                title,
                ..Drawn::missing(&words)
            };
        }
    };
    let pools = ask(visit.client(), "osd pool ls", &[("detail", "detail".into())]).await;
    let pools = pools.map(|p| rbd_pools(&p)).unwrap_or_default();
    let at = At {
        visit: &visit,
        place: &place,
        name: &name,
        id: &shown.id,
    };
    let body = html! {
        p { a href=(place.images_link()) { "All images there" } }
        p { (anchor("/why", &[("look", "1"), ("about", &place.spec(&name))], "Why is it slow?")) }
        (section("figures", "Figures", &figures(&shown)))
        (section("snaps", "Snapshots", &at.snaps(&shown)))
        @if visit.rights.write {
            (section("resize", "Resize", &at.resize(&shown)))
            (section("clone", "Clone", &at.clone_form(&shown, &pools)))
            (section("trash", "Trash", &html! {
                p { "The image loses its name and keeps its data; it can be restored." }
                (at.button("Move to the trash", &[("act", "image-trash")]))
            }))
        }
    };
    Drawn::new(title, body)
}

fn figures(shown: &Shown) -> Markup {
    let h = &shown.header;
    html! {
        dl.wide {
            dt { "Size" } dd { (bytes(h.size)) " in " (shown.fixed.layout.objects(h.size)) " objects of " (bytes(shown.fixed.layout.object_size())) }
            dt { "Id" } dd { (shown.id) }
            dt { "Features" } dd { (images::features(h.features)) }
            @if let (Some(parent), Some(spec)) = (&shown.parent, &h.parent) {
                dt { "Clone of" } dd { (parent) ", the first " (bytes(spec.overlap)) }
            }
            dt { "Open by" }
            dd { @if shown.watchers.is_empty() { "nobody" } @else { (shown.watchers.join(", ")) } }
        }
    }
}

/// The image that all forms of the page are about.
struct At<'a> {
    visit: &'a Visit,
    place: &'a Place,
    name: &'a str,
    id: &'a str,
}

impl At<'_> {
    fn fields(&self) -> [(&str, &str); 4] {
        [
            ("pool", self.place.pool.as_str()),
            ("namespace", self.place.namespace.as_str()),
            ("image", self.name),
            ("image-id", self.id),
        ]
    }

    fn button(&self, label: &str, more: &[(&str, &str)]) -> Markup {
        button(self.visit, label, &[&self.fields(), more].concat())
    }

    /// What each form begins with.
    fn hidden(&self, act: &str) -> Markup {
        html! {
            (token(self.visit))
            input type="hidden" name="act" value=(act);
            @for (name, value) in self.fields() { input type="hidden" name=(name) value=(value); }
        }
    }

    fn snaps(&self, shown: &Shown) -> Markup {
        let snaps = images::users_snaps(&shown.header);
        let others = shown.header.snaps.len() - snaps.len();
        let write = self.visit.rights.write;
        let mut heads = vec!["Snapshot", "#Size", "State", "#Clones"];
        if write {
            heads.push("");
        }
        // The newest; older ones are many where something makes them by the clock.
        let left = snaps.len().saturating_sub(SNAPS_MAX);
        let rows: Vec<Markup> = snaps.iter().skip(left).map(|s| self.snap(s)).collect();
        html! {
            @if rows.is_empty() { (show::none("There are no snapshots.")) } @else { (show::table("Snapshots", &heads, &rows)) }
            @if left > 0 { p.quiet { (left) " older ones are not shown." } }
            @if others > 0 { p.quiet { (others) " more belong to groups, mirroring or the trash." } }
            @if write {
                form.row method="post" action="/do" {
                    (self.hidden("snap-create"))
                    div { label for="snap-name" { "Name" } input #snap-name name="snap" maxlength="255" required; }
                    button type="submit" { "Create snapshot" }
                }
            }
        }
    }

    fn snap(&self, snap: &Snap) -> Markup {
        let protected = snap.protection == PROTECTED;
        let (act, word) = match protected {
            true => ("snap-unprotect", "Unprotect"),
            false => ("snap-protect", "Protect"),
        };
        let (name, id) = (snap.name.as_str(), snap.id.to_string());
        html! {
            (show::head(&html! { (name) }))
            (num(bytes(snap.size)))
            td { @if protected { (tag(Tone::Plain, "protected")) } @else { "not protected" } }
            (num(snap.child_count))
            @if self.visit.rights.write {
                td {
                    (self.button(&format!("{word} {name}"), &[("act", act), ("snap", name), ("snap-id", &id)]))
                    @if !protected { " " (self.button(&format!("Remove {name}"), &[("act", "snap-remove"), ("snap", name), ("snap-id", &id)])) }
                }
            }
        }
    }

    fn resize(&self, shown: &Shown) -> Markup {
        html! {
            form.row method="post" action="/do" {
                (self.hidden("image-resize"))
                div {
                    label for="size" { "New size (now " (bytes(shown.header.size)) ")" }
                    input #size name="size" placeholder="20G" maxlength="20" required;
                }
                div.check-box {
                    input #shrink name="shrink" type="checkbox" value="yes";
                    label for="shrink" { "May be smaller than now: what lies behind is lost" }
                }
                button type="submit" { "Resize" }
            }
        }
    }

    fn clone_form(&self, shown: &Shown, pools: &[String]) -> Markup {
        let snaps = images::users_snaps(&shown.header);
        if snaps.is_empty() {
            return show::none("A clone is made of a snapshot: create one first.");
        }
        html! {
            form.row method="post" action="/do" {
                (self.hidden("image-clone"))
                div {
                    label for="clone-snap" { "Snapshot" }
                    @if snaps.len() > SNAPS_MAX { input #clone-snap name="snap" maxlength="255" required; } @else {
                        select #clone-snap name="snap" { @for s in &snaps { option value=(s.name) { (s.name) } } }
                    }
                }
                div {
                    label for="clone-pool" { "Pool" }
                    select #clone-pool name="to-pool" {
                        @for p in pools { option value=(p) selected[*p == self.place.pool] { (p) } }
                    }
                }
                div { label for="clone-ns" { "Namespace" } input #clone-ns name="to-namespace" value=(self.place.namespace) maxlength="255"; }
                div { label for="clone-name" { "Name" } input #clone-name name="to-image" maxlength="255" required; }
                button type="submit" { "Clone" }
            }
        }
    }
}
