//! The console: web pages that show a cluster to its operator, and take the steps that are safe to take from there
//! (docs/operating/console.md).
//!
//! Vocabulary: a *session* is somebody who has logged in with the name and key of a cephx entity, and the RADOS client that runs
//! as that entity; an *act* is one change, with the command that would do the same; the *live part* of a page is what htmx fetches
//! again while the page is open.
//!
//! The console has no key and no rights of its own. Whatever a page shows, and whatever an act does, is asked of monitor,
//! manager and OSDs by the session's client, which checks the entity's capabilities there as for anybody else. What is checked
//! here (`rights`) only comes on top: no buttons, and no acts, for who may not change the OSD map.
//!
//! Invariants: no act without a session, its token (`sessions`), and the right to write; a session ends with the key that opened
//! it. All text goes into pages through `maud`, which escapes it; pages run no script but htmx, and none from elsewhere.
//! Everything that strangers can make grow has a bound: connections, heads, bodies, attempts to log in, sessions.
//!
//! Pure, without I/O: `sessions`, `rights`, `acts`, `web`, `history`, `pages`' drawing.

mod acts;
mod buckets;
mod certificate;
mod cluster;
mod connections;
mod frame;
mod history;
mod images;
mod login;
mod pages;
mod perform;
mod rights;
mod serve;
mod sessions;
mod settings;
mod show;
mod statics;
mod visit;
mod web;

pub use buckets::{Bucket, Buckets, Listed, Looking, Quota, User};
pub use certificate::self_signed;
pub use serve::serve;
pub use settings::{Cluster, Settings};
