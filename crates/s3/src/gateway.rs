//! A gateway on its cluster: pools, and all that is made over them.

use crate::accounts::{self, Accounts, USERS};
use crate::amount::Count;
use crate::buckets::{BUCKETS, Buckets, COUNTS};
use crate::check::{Check, Report};
use crate::classes::{CLASSES, Class, Classes, Opener};
use crate::counts::Counter;
use crate::courier::{Courier, Gatherer};
use crate::data::DataStore;
use crate::endpoints::Endpoints;
use crate::expiry::Expiry;
use crate::front::{Door, Front, Hosts, Keys, Settings};
use crate::gc::Collector;
use crate::index::Index;
use crate::keystone::Keystone;
use crate::lifecycle::DAY;
use crate::meters::Meters;
use crate::objects::Objects;
use crate::quota::{Limits, Quota};
use crate::rate::Rates;
use crate::remembered::{self, Memory, Object, Remembered};
use crate::topics::Topics;
use crate::usage::Usage;
use crate::{Clock, Error, Result};
use bytes::Bytes;
use client::{Client, IoCtx};
use io::task::{self, TaskHandle};
use metrics::Registry;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Users, buckets and indexes: replicated, since it has omap.
pub const META_POOL: &str = "s3.meta";
/// Objects' bytes: may be erasure coded, if it is made before the first gateway.
pub const DATA_POOL: &str = "s3.data";

/// What each request asks for, and is remembered; of buckets not how far lifecycles are, and which indexes are to be removed.
const REMEMBERED: [Object; 2] = [(USERS, b""), (BUCKETS, b"lx")];

/// A pool as all that is served is made over it.
type Store = Remembered<IoCtx>;

/// What administrators change.
pub struct Admin {
    client: Client,
    classes: Classes<Store>,
    pub accounts: Accounts<Store>,
    pub buckets: Buckets<Store>,
    counter: Counter<Store>,
    pub limits: Limits<Store>,
    pub rates: Rates<Store>,
    pub usage: Usage<Store>,
}

/// A pool, which is made where there is none.
async fn pool(client: &Client, name: &str) -> Result<IoCtx> {
    match client.pool(name).await {
        Err(e) if e.is_not_found() => {}
        other => return Ok(other?),
    }
    let make = serde_json::json!({"prefix": "osd pool create", "pool": name});
    client.mon_command(&make.to_string(), Bytes::new()).await?;
    claim_pool(client, name).await?;
    client.latest_map().await?;
    Ok(client.pool(name).await?)
}

/// Says what the pool is for; refused if it is for something else.
async fn claim_pool(client: &Client, name: &str) -> Result<()> {
    let application =
        serde_json::json!({"prefix": "osd pool application enable", "pool": name, "app": "rgw"});
    client.mon_command(&application.to_string(), Bytes::new()).await?;
    Ok(())
}

/// Pools of storage classes, which are there.
fn opener(client: &Client) -> Opener<Store> {
    let client = client.clone();
    Arc::new(move |name: String| {
        let client = client.clone();
        Box::pin(async move { Ok(Remembered::plain(client.pool(&name).await?)) })
    })
}

fn classes(client: &Client, meta: &Store, data: Store, clock: &Clock) -> Classes<Store> {
    Classes::new(meta.clone(), data, opener(client), clock.clone())
}

pub(crate) fn clock(client: &Client) -> Clock {
    let platform = client.platform();
    Clock::new(platform.clock.clone(), platform.random.clone())
}

/// The system pool, whose changes are told; nothing is remembered of it while it is not watched.
async fn meta(client: &Client, clock: &Clock) -> Result<(Store, Watching)> {
    let meta = pool(client, META_POOL).await?;
    accounts::ensure(&meta, USERS).await?;
    accounts::ensure(&meta, BUCKETS).await?;
    accounts::ensure(&meta, COUNTS).await?;
    accounts::ensure(&meta, CLASSES).await?;
    let memory = Memory::new(clock.clone(), &REMEMBERED);
    let tell = remembered::teller(&meta, &REMEMBERED);
    let store = Remembered::new(meta.clone(), memory.clone(), tell);
    Ok((store, Watching { meta, memory }))
}

/// What has to be heard of.
struct Watching {
    meta: IoCtx,
    memory: Arc<Memory>,
}

impl Watching {
    /// Until they are ended, with the gateway.
    fn begin(self) -> Vec<TaskHandle<()>> {
        let one = |(oid, _): Object| {
            task::spawn_local(remembered::watch(self.meta.clone(), self.memory.clone(), oid))
        };
        REMEMBERED.into_iter().map(one).collect()
    }
}

/// Whether all that is written fits together; of one bucket, if it is named.
pub async fn check(client: &Client, bucket: Option<&str>) -> Result<Report> {
    let clock = clock(client);
    let (meta, _) = meta(client, &clock).await?;
    let index = Index::new(meta.clone(), clock.clone(), crate::index::SPLIT_AT);
    let data = Remembered::plain(pool(client, DATA_POOL).await?);
    let classes = classes(client, &meta, data, &clock);
    let data = DataStore::new(classes, index.clone(), clock.clone());
    let check = Check {
        topics: Topics::new(meta.clone(), clock.clone()),
        buckets: Buckets::new(meta, index.clone(), clock.clone()),
        objects: Objects::new(index, data, clock),
    };
    check.run(bucket).await
}

impl Admin {
    pub async fn open(client: &Client) -> Result<Self> {
        let clock = clock(client);
        let (meta, _) = meta(client, &clock).await?;
        let index = Index::new(meta.clone(), clock.clone(), crate::index::SPLIT_AT);
        let buckets = Buckets::new(meta.clone(), index.clone(), clock.clone());
        let counter = Counter::new(meta.clone(), index, clock.clone());
        // No data are read or written here; the pool of STANDARD is made by the first gateway.
        let classes = classes(client, &meta, meta.clone(), &clock);
        Ok(Self {
            client: client.clone(),
            classes,
            accounts: Accounts::new(meta.clone(), clock.clone()),
            limits: Limits::new(meta.clone(), buckets.clone(), counter.clone(), clock.clone()),
            rates: Rates::new(meta.clone(), buckets.clone(), clock.clone()),
            usage: Usage::new(meta, clock),
            buckets,
            counter,
        })
    }

    /// All storage classes but STANDARD, by their names.
    pub async fn classes(&self) -> Result<BTreeMap<String, Class>> {
        self.classes.all().await
    }

    /// Has a class take what is put into it, in a pool that is there and has no other use.
    pub async fn add_class(&self, name: &str, pool: &str) -> Result<Class> {
        if [META_POOL, DATA_POOL].contains(&pool) {
            return Err(Error::Invalid(format!(
                "the pool {pool} has a use of its own here"
            )));
        }
        match self.client.pool(pool).await {
            Err(e) if e.is_not_found() => {
                return Err(Error::Invalid(format!("there is no pool {pool}: make it first")));
            }
            other => drop(other?),
        }
        claim_pool(&self.client, pool).await?;
        self.classes.add(name, pool).await
    }

    pub async fn withdraw_class(&self, name: &str) -> Result<Class> {
        self.classes.withdraw(name).await
    }

    /// Of one bucket, of a user's or of all; those that hold most first.
    pub async fn stats(&self, bucket: Option<&str>, owner: Option<&str>) -> Result<Vec<BucketStats>> {
        let all = match bucket {
            Some(name) => vec![(name.to_string(), self.buckets.get(name).await?)],
            None => self.buckets.all().await?,
        };
        let all: Vec<_> = all
            .into_iter()
            .filter(|(_, b)| owner.is_none_or(|o| b.owner == o))
            .collect();
        let ids: Vec<String> = all.iter().map(|(_, b)| b.id.clone()).collect();
        let counts = self.counter.counts(&ids).await?;
        let mut stats = Vec::with_capacity(all.len());
        for (name, bucket) in all {
            stats.push(BucketStats {
                count: counts.get(&bucket.id).copied(),
                quota: self.limits.of_bucket(&bucket.id).await?.unwrap_or_default(),
                name,
                id: bucket.id,
                owner: bucket.owner,
            });
        }
        stats.sort_by_key(|s| std::cmp::Reverse(s.count.map(|c| c.held.bytes)));
        Ok(stats)
    }
}

/// Which Keystone is asked. The log says at once whether it lets the gateway in.
fn keystone(settings: &Settings, clock: &Clock) -> Option<Keystone> {
    let of = settings.keystone.clone()?;
    if !of.ec2 && settings.swift.is_none() {
        tracing::warn!(
            "s3: Keystone is asked for nothing: Swift is not served, and its keys of EC2 are not taken"
        );
    }
    let keystone = Keystone::new(of, clock.clone());
    let greeting = keystone.clone();
    drop(task::spawn_local(async move { greeting.greet().await }));
    Some(keystone)
}

/// What is known of a bucket's size.
#[derive(Debug)]
pub struct BucketStats {
    pub name: String,
    pub id: String,
    pub owner: String,
    /// None: nobody has counted yet.
    pub count: Option<Count>,
    /// Its own.
    pub quota: Quota,
}

/// All that a gateway serves with, made before it says that it is ready.
pub struct Gateway {
    front: Front<Store>,
    watching: Watching,
    /// Of buckets, and of websites; and whether S3 is served.
    hosts: ([Hosts; 2], bool),
    usage_keep: Option<u64>,
    log_every: Duration,
    courier: Courier<Store>,
    collector: Collector<Store>,
}

fn hosts(settings: &Settings) -> [Hosts; 2] {
    [&settings.domains, &settings.sites].map(|names| Hosts::new(names))
}

impl Gateway {
    /// `registry`: where it shows what it counts.
    pub async fn open(client: &Client, settings: &Settings, registry: &Registry) -> Result<Self> {
        let (meters, clock) = (Meters::new(registry), clock(client));
        let (meta, watching) = meta(client, &clock).await?;
        let data = Remembered::plain(pool(client, DATA_POOL).await?);
        let index = Index::new(meta.clone(), clock.clone(), settings.split_at);
        index.told().counted(&meters);
        let classes = classes(client, &meta, data, &clock);
        let data = DataStore::new(classes, index.clone(), clock.clone()).counted(&meters.rgw);
        let data = data.sparing();
        let buckets = Buckets::new(meta.clone(), index.clone(), clock.clone());
        let objects = Objects::new(index.clone(), data.clone(), clock.clone());
        let topics = Topics::new(meta.clone(), clock.clone());
        let endpoints = Endpoints::new(&settings.endpoints);
        let gatherer = Gatherer::new(index.clone(), topics.clone(), clock.clone());
        let accounts = Accounts::new(meta.clone(), clock.clone());
        let counter = Counter::new(meta.clone(), index.clone(), clock.clone());
        let limits = Limits::new(meta.clone(), buckets.clone(), counter.clone(), clock.clone());
        let rates = Rates::new(meta.clone(), buckets.clone(), clock.clone());
        let usage = settings.usage_keep.map(|_| Usage::new(meta, clock.clone()));
        let day = settings.day.as_millis() as u64;
        if day != DAY {
            tracing::warn!("s3: lifecycles count days of {day} ms: what has a term goes before its time");
        }
        let keys = Keys {
            plain: settings.plain_keys,
            masters: settings.masters.clone(),
        };
        let of = (buckets.clone(), objects.clone());
        Ok(Self {
            front: Front::new(
                accounts,
                of,
                (limits, rates, counter),
                (meters, usage),
                clock.clone(),
                (day, keys),
                (settings.swift.clone(), keystone(settings, &clock)),
                (topics, endpoints.clone()),
            ),
            watching,
            log_every: settings.log_every,
            courier: Courier::new(gatherer, endpoints.sender()),
            hosts: (hosts(settings), settings.s3),
            usage_keep: settings.usage_keep,
            collector: Collector {
                index,
                data,
                expiry: Expiry {
                    objects,
                    buckets: buckets.clone(),
                    clock: clock.clone(),
                    day,
                },
                buckets,
                clock,
                wait: settings.gc_wait.as_millis() as u64,
            },
        })
    }

    /// Serves until `stop` turns true.
    pub async fn serve(self, door: Door, stop: watch::Receiver<bool>) {
        let watching = self.watching.begin();
        crate::front::serve(
            door,
            (self.front, self.hosts, (self.usage_keep, self.log_every)),
            (self.collector, self.courier),
            stop,
        )
        .await;
        watching.iter().for_each(TaskHandle::abort);
    }

    /// Serves until `until` completes; what that said.
    pub async fn serve_until<T>(self, door: Door, until: impl Future<Output = T>) -> T {
        let (tell, stop) = watch::channel(false);
        let ended = async {
            let said = until.await;
            // Whoever serves has not ended before it was told.
            let _ = tell.send(true);
            said
        };
        tokio::join!(self.serve(door, stop), ended).1
    }
}
