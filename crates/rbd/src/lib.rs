//! RBD images, as librbd keeps them, over our RADOS client (docs/internals/rbd.md; docs/protocol/ceph/05-rbd.md).
//!
//! Enter at [`Image::open`], and at [`directory`] for what concerns a pool's images as a whole.
//!
//! Vocabulary: an image's *header* is the object `rbd_header.<id>`, which its clients watch; a *data object* holds a piece of it
//! ([`layout`]); the *object map* says which data objects exist; a *view* is the header as it was last read, with the
//! snapshots that writes keep. A *clone* reads from a snapshot of its *parent* what it has not written itself, below the
//! *overlap*; *copy-up* brings an object's part of the parent into the clone before its first write. The *lock* is the exclusive
//! lock on the header: its owner alone writes, and hands it over when asked.
//!
//! Invariants: a write is durable when it is answered. With the exclusive-lock feature nothing is written without the
//! lock, and the lock is given away only when no write is under way. A data object exists only if the object map says so
//! (EXISTS, PENDING or CLEAN), before and after a crash at any point; or the map is flagged invalid.
//!
//! Pure, without I/O: [`layout`], [`notify`], [`lock`], [`header`]'s decoding; the object map is [`objclass`]'s.
//!
//! Not here: images of format 1, with the journaling feature, under migration (but for [`image::migration`] itself), non-primary or with
//! another client's write-back cache: refused with [`Error::Refused`]. Groups and mirroring beyond what removal, snapshots and the primary site of mirroring by snapshots need.

mod calls;
pub mod directory;
mod error;
pub mod features;
pub mod header;
pub mod image;
pub mod layout;
pub mod lock;
pub mod mirror;
pub mod names;
pub mod notify;
mod together;
pub mod trash;

pub use error::{Error, Result};
pub use image::{Changed, Image, ImageOptions, Way};
pub use layout::Layout;
