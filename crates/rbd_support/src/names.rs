//! Names of images of which OSDs report figures: those know ids only.
//!
//! Bound: one name for each image that the OSDs report. All of them are asked for again after [`FRESH_FOR`], since images
//! are renamed.

use crate::config::Config;
use crate::part::{LOOK_TIMEOUT, Part};
use client::Client;
use cluster::ImageKey;
use rbd::directory;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const FRESH_FOR: Duration = Duration::from_secs(60);

type Named = BTreeMap<ImageKey, String>;

#[derive(Default)]
pub struct Names {
    known: Named,
    /// Their images are gone, or in the trash.
    nameless: BTreeSet<ImageKey>,
    asked: Duration,
    asking: Option<Part<(Named, BTreeSet<ImageKey>)>>,
}

impl Names {
    /// Images whose names are wanted.
    fn missing(&self, config: &Config) -> Vec<ImageKey> {
        let sums = config.cluster.stats().image_sums();
        let is_old = config.clock.monotonic().saturating_sub(self.asked) > FRESH_FOR;
        let known = |key: &ImageKey| self.known.contains_key(key) || self.nameless.contains(key);
        sums.into_keys().filter(|key| is_old || !known(key)).collect()
    }

    pub fn wants(&self, config: &Config) -> bool {
        self.asking.is_some() || !self.missing(config).is_empty()
    }

    pub fn abort(&mut self) {
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
        *self = Self::default();
    }

    /// Asks for what is missing; gives all names when there are others than before.
    pub async fn follow(&mut self, client: &Client, config: &Config) -> Option<Named> {
        if let Some(asking) = &self.asking {
            if !asking.is_over() {
                return None;
            }
            return self.take().await;
        }
        let missing = self.missing(config);
        if missing.is_empty() {
            return None;
        }
        if missing
            .iter()
            .any(|k| self.known.contains_key(k) || self.nameless.contains(k))
        {
            self.asked = config.clock.monotonic();
            let reported: BTreeSet<&ImageKey> = missing.iter().collect();
            self.known.retain(|k, _| reported.contains(k));
            self.nameless.clear();
        }
        let client = client.clone();
        self.asking = Some(Part(io::task::spawn_local(ask(client, missing))));
        None
    }

    async fn take(&mut self) -> Option<Named> {
        let (found, nameless) = self.asking.take()?.ended().await?;
        self.nameless.extend(nameless);
        self.known.extend(found);
        Some(self.known.clone())
    }
}

async fn ask(client: Client, keys: Vec<ImageKey>) -> (Named, BTreeSet<ImageKey>) {
    let (mut found, mut nameless) = (Named::new(), BTreeSet::new());
    for key in keys {
        let mut io = client.pool_by_id(key.pool);
        io.set_timeout(Some(LOOK_TIMEOUT));
        io.set_namespace(key.namespace.clone().into_bytes());
        match directory::name_of(&io, &key.id).await {
            Ok(name) => drop(found.insert(key, name)),
            Err(_) => drop(nameless.insert(key)),
        }
    }
    (found, nameless)
}
