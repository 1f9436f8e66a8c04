//! How far a resync of a member is: what is known of what it has.

use crate::state::versions::Versions;
use std::collections::BTreeMap;
use types::{EVersion, HObject};

#[derive(Debug)]
pub(crate) struct Resync {
    /// The newest entry that it has.
    pub since: EVersion,
    /// What it has of each object that changed since.
    pub listings: BTreeMap<HObject, Versions>,
    /// Objects asked for, by the number of the question.
    pub asked: BTreeMap<u64, HObject>,
}

impl Resync {
    /// Nothing is known but where its log ends.
    pub fn new(since: EVersion) -> Self {
        Self {
            since,
            listings: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    pub fn objects(&self) -> usize {
        self.listings.len() + self.asked.len()
    }
}
