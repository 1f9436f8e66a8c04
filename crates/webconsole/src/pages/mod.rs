//! The pages, in a table.

mod buckets;
mod files;
mod image;
mod images;
mod log;
mod osds;
mod overview;
mod pgs;
mod pools;
mod slow;
mod steps;
mod why;

use crate::visit::{Drawn, Visit};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

type Drawing = Pin<Box<dyn Future<Output = Drawn>>>;

pub struct PageSpec {
    pub path: &'static str,
    /// As the navigation calls it; empty: it is reached from another page.
    pub name: &'static str,
    pub draw: fn(Rc<Visit>) -> Drawing,
}

const fn spec(path: &'static str, name: &'static str, draw: fn(Rc<Visit>) -> Drawing) -> PageSpec {
    PageSpec { path, name, draw }
}

/// In the order of the navigation.
pub const PAGES: &[PageSpec] = &[
    spec("/", "Overview", |v| Box::pin(overview::draw(v))),
    spec("/doctor", "Doctor", |v| Box::pin(steps::draw(v))),
    spec("/osds", "Hosts and OSDs", |v| Box::pin(osds::draw(v))),
    spec("/pools", "Pools", |v| Box::pin(pools::draw(v))),
    spec("/images", "Images", |v| Box::pin(images::draw(v))),
    spec("/image", "", |v| Box::pin(image::draw(v))),
    spec("/files", "File systems", |v| Box::pin(files::draw(v))),
    spec("/buckets", "Buckets", |v| Box::pin(buckets::draw(v))),
    spec("/pgs", "Placement groups", |v| Box::pin(pgs::draw(v))),
    spec("/slow", "Slow operations", |v| Box::pin(slow::draw(v))),
    spec("/why", "Why slow", |v| Box::pin(why::draw(v))),
    spec("/log", "Log and audit", |v| Box::pin(log::draw(v))),
];

pub fn find(path: &str) -> Option<&'static PageSpec> {
    PAGES.iter().find(|p| p.path == path)
}
