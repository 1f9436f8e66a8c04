//! Commands about OSDs, the OSD map, and clients that are kept from OSDs.

pub mod blocklist;
pub mod change;
pub mod df;
pub mod flags;
pub mod new;
pub mod read;
pub mod safety;
pub mod tiers;
pub mod tree;
pub mod upmap;
pub mod weights;
