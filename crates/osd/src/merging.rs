//! What an OSD knows of the merges that it has begun ([`crate::merges`]).

use pg::Group;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EVersion, PoolId, SPgId};

#[derive(Debug, Default)]
pub struct Merges {
    /// What PGs said when they had come to rest.
    pub at_rest: BTreeMap<SPgId, (Group, EVersion)>,
    /// The two that were asked, and when.
    pub asked: BTreeMap<PoolId, (u32, Duration)>,
    pub committing: bool,
}
