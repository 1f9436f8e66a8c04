//! The cluster map as the PGs of one OSD see it: views of pools, and where an object lives.

use bytes::Bytes;
use cluster::{ClusterState, PgConfig};
use pg::{Blocklist, ClusterView, Coding, Group, Located, PgJoined, PgLife, PoolView, SnapIntervals};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use types::osdmap::{OsdMap, osd_state};
use types::places;
use types::pool::{PgPool, pool_flag};
use types::{Epoch, HObject, ObjectLocator, OsdId, PgId, PoolId, SPgId};

/// Whether OSDs serve pools of shards: monitors make none before all of them do.
pub const SERVES_SHARDS: bool = true;

/// Peers that this OSD is connected with for heartbeats alone.
const HEARTBEAT_PEERS_MAX: usize = 64;

/// Where CRUSH wants each PG, with holes where it found nobody for a shard.
type UpSets = BTreeMap<PgId, Up>;

#[derive(Debug)]
struct Up {
    set: Vec<OsdId>,
    /// Who of it leads, by the operator's affinities.
    primary: OsdId,
}
type Pools = HashMap<PoolId, Arc<PoolView>>;

/// A snapshot of the cluster, prepared for one OSD; made anew for each epoch.
#[derive(Debug)]
pub struct Placement {
    pub osd: OsdId,
    pub state: Arc<ClusterState>,
    pub blocklist: Arc<Blocklist>,
    pools: Pools,
    up: Arc<UpSets>,
    /// The PGs in which this OSD has a part; of a PG of shards those that it has or is to have.
    groups: BTreeMap<SPgId, Group>,
    /// The newest epoch seen in which another OSD led a PG that this one leads now, if one was seen.
    led_after: BTreeMap<PgId, Epoch>,
}

impl Placement {
    pub fn new(osd: OsdId, state: Arc<ClusterState>) -> Self {
        let up = Arc::new(up_sets(&state.osdmap));
        Self::with_up(osd, state, up, &Pools::new())
    }

    /// The placement in a later state.
    pub fn next(&self, state: Arc<ClusterState>) -> Self {
        let up = match same_places(&self.state.osdmap, &state.osdmap) {
            true => self.up.clone(),
            false => Arc::new(up_sets(&state.osdmap)),
        };
        let mut next = Self::with_up(self.osd, state, up, &self.pools);
        next.led_after = next
            .led()
            .filter_map(|pg| Some((pg, self.led_before(pg)?)))
            .collect();
        next
    }

    fn led(&self) -> impl Iterator<Item = PgId> {
        let led = self.groups.keys().filter(move |slot| self.leads(**slot));
        led.map(|slot| slot.pg)
    }

    /// The shard from which this OSD leads a PG, if it does: the first that it holds.
    pub fn lead(&self, pg: PgId) -> Option<SPgId> {
        let config = self.state.pgs.get(pg).filter(|c| c.primary == self.osd)?;
        match self.state.osdmap.pool(pg.pool)?.is_erasure() {
            false => Some(SPgId::replicated(pg)),
            true => shards(self.osd, &config.acting)
                .next()
                .map(|shard| SPgId { pg, shard }),
        }
    }

    /// True if this OSD leads the PG from this shard.
    pub fn leads(&self, slot: SPgId) -> bool {
        self.lead(slot.pg) == Some(slot)
    }

    /// What [`Placement::led_after`] is in the next state, if this OSD leads the PG there.
    fn led_before(&self, pg: PgId) -> Option<Epoch> {
        match self.serves(pg) {
            true => self.led_after.get(&pg).copied(),
            false => Some(self.epoch()),
        }
    }

    /// An operation that its client sent in this epoch or earlier was sent before another OSD led the PG: the client sends it
    /// again, and with it all that this OSD has dropped meanwhile. To execute it now would let it overtake those.
    pub fn led_after(&self, pg: PgId) -> Epoch {
        // So does what was sent before another PG was merged into this one.
        let merged = self.merged_in(pg).saturating_sub(1);
        self.led_after.get(&pg).copied().unwrap_or(0).max(merged)
    }

    /// The epoch of the newest merge into the PG; 0: there was none in its life.
    pub fn merged_in(&self, pg: PgId) -> Epoch {
        let joined = self.state.pgs.get(pg).and_then(|c| c.life.joined.as_ref());
        joined.map_or(0, |j| j.epoch)
    }

    fn with_up(osd: OsdId, state: Arc<ClusterState>, up: Arc<UpSets>, before: &Pools) -> Self {
        let map = &state.osdmap;
        let blocked = map.blocklist.keys().chain(map.range_blocklist.keys());
        let blocklist = Arc::new(Blocklist::new(blocked).with_ids(state.fenced_ids()));
        let full = |o: &OsdId| map.osd(*o).is_some_and(|i| i.state & osd_state::FULL != 0);
        let full_osds: Arc<BTreeSet<OsdId>> = Arc::new(map.osd_ids().filter(full).collect());
        let view = |id, pool| {
            Arc::new(PoolView {
                full_osds: full_osds.clone(),
                coding: coding(map, pool, before.get(&id)),
                ..pool_view(&state, id, pool, blocklist.clone())
            })
        };
        let pools = map
            .pools
            .iter()
            .map(|(id, pool)| (*id, view(*id, pool)))
            .collect();
        let groups = groups(osd, &state, &up);
        Self {
            osd,
            state,
            blocklist,
            pools,
            up,
            groups,
            led_after: BTreeMap::new(),
        }
    }

    pub fn groups(&self) -> &BTreeMap<SPgId, Group> {
        &self.groups
    }

    /// Where CRUSH wants a PG, as the map says it.
    pub fn up(&self, pg: PgId) -> &[OsdId] {
        self.up.get(&pg).map_or(&[], |up| &up.set)
    }

    /// The configuration of a PG in which this OSD has a part.
    pub fn group(&self, slot: SPgId) -> Option<&Group> {
        self.groups.get(&slot)
    }

    /// True if this OSD has no part in a PG, or not this shard of it, that has all the copies or shards it should have.
    pub fn is_stray(&self, slot: SPgId) -> bool {
        let pg = slot.pg;
        let map = &self.state.osdmap;
        let (Some(config), Some(up), Some(pool)) =
            (self.state.pgs.get(pg), self.up.get(&pg), map.pool(pg.pool))
        else {
            return false;
        };
        let size = usize::from(pool.size);
        let in_place = match pool.is_erasure() {
            false => config.in_sync == up.set,
            true => config.acting == places::target(&config.acting, &places::listed(&up.set), size),
        };
        !self.groups.contains_key(&slot)
            && config.in_sync.len() >= size
            && in_place
            && config.in_sync.iter().all(|o| map.is_up(*o))
    }

    /// The PG that has the objects now of one that there is no more, since it was merged.
    pub fn merged_into(&self, slot: SPgId) -> Option<SPgId> {
        let pool = self.state.osdmap.pool(slot.pg.pool)?;
        let seed = pool.raw_to_pg(slot.pg.seed);
        let gone = slot.pg.seed >= pool.pg_num && !pool.is_erasure();
        gone.then_some(SPgId {
            pg: PgId::new(slot.pg.pool, seed),
            shard: slot.shard,
        })
    }

    /// The others that this OSD shares PGs with and that are up, and its neighbours in the order of ids: at most
    /// [`HEARTBEAT_PEERS_MAX`], those that it needs as a primary in any case.
    pub fn peers(&self) -> BTreeSet<OsdId> {
        let map = &self.state.osdmap;
        let other = |o: &OsdId| *o != self.osd && map.is_up(*o);
        let led = self.groups.values().filter(|g| g.is_primary());
        let mut peers: BTreeSet<OsdId> = led.flat_map(Group::members).filter(other).collect();
        let up: Vec<OsdId> = map.osd_ids().filter(other).collect();
        if !up.is_empty() {
            let after = up.partition_point(|o| *o < self.osd);
            peers.extend([up[after % up.len()], up[(after + up.len() - 1) % up.len()]]);
        }
        let shared: BTreeSet<OsdId> = self
            .groups
            .values()
            .flat_map(Group::members)
            .filter(other)
            .collect();
        for osd in shared {
            if peers.len() >= HEARTBEAT_PEERS_MAX {
                break;
            }
            peers.insert(osd);
        }
        peers
    }

    pub fn epoch(&self) -> u32 {
        self.state.osdmap.epoch
    }

    pub fn pool(&self, id: PoolId) -> Option<&Arc<PoolView>> {
        self.pools.get(&id)
    }

    /// True if this OSD is the one that serves `pg`.
    pub fn serves(&self, pg: PgId) -> bool {
        self.state.pgs.serves(pg, self.osd)
    }

    /// The PG that an operation's hash and seed lead to now: a client with an older map may name the PG from
    /// before a split.
    pub fn current_pg(&self, named: PgId, hash: u32, is_object: bool) -> Option<PgId> {
        let pool = self.state.osdmap.pool(named.pool)?;
        if is_object {
            return Some(PgId::new(named.pool, pool.raw_to_pg(hash)));
        }
        (named.seed < pool.pg_num).then_some(named)
    }
}

impl ClusterView for Placement {
    fn pool(&self, id: PoolId) -> Option<&PoolView> {
        self.pools.get(&id).map(Arc::as_ref)
    }

    fn locate(&self, oloc: &ObjectLocator, oid: &Bytes, snap: u64) -> Located {
        let Some((hash, pg)) = self
            .state
            .osdmap
            .object_to_pg(oloc.pool, &oloc.nspace, &oloc.key, oid)
        else {
            return Located::NoPool;
        };
        let object = HObject::new(
            oloc.pool,
            hash,
            oloc.nspace.clone(),
            oloc.key.clone(),
            oid.clone(),
            snap,
        );
        if self.serves(pg) {
            Located::Local(object)
        } else {
            Located::Remote(object)
        }
    }
}

fn up_sets(map: &OsdMap) -> UpSets {
    let up = |pg| {
        let sets = map.pg_to_up_acting(pg);
        Up {
            set: sets.up,
            primary: sets.up_primary,
        }
    };
    map.pgs().map(|pg| (pg, up(pg))).collect()
}

/// True if CRUSH surely wants every PG where it wanted it before.
fn same_places(a: &OsdMap, b: &OsdMap) -> bool {
    let shape = |p: &PgPool| (p.size, p.pg_num, p.pgp_num, p.crush_rule, p.flags);
    let pools = |m: &OsdMap| -> Vec<_> { m.pools.iter().map(|(id, p)| (*id, shape(p))).collect() };
    let ups = |m: &OsdMap| -> Vec<_> { m.osd_ids().map(|o| (o, m.is_up(o))).collect() };
    Arc::ptr_eq(&a.crush, &b.crush)
        && a.osd_weight == b.osd_weight
        && a.primary_affinity == b.primary_affinity
        && a.pg_upmap == b.pg_upmap
        && a.pg_upmap_items == b.pg_upmap_items
        && a.pg_upmap_primaries == b.pg_upmap_primaries
        && ups(a) == ups(b)
        && pools(a) == pools(b)
}

/// Where an OSD stands among these.
fn shards(osd: OsdId, acting: &[Option<OsdId>]) -> impl Iterator<Item = i8> + '_ {
    let its = acting.iter().enumerate().filter(move |(_, o)| **o == Some(osd));
    its.filter_map(|(at, _)| i8::try_from(at).ok())
}

/// The slots that an OSD has of a PG: one, or that of each shard which it has or is to have. `wanted`: where each shard should
/// be ([`places::target`]), None of copies.
fn slots(
    osd: OsdId,
    pg: PgId,
    config: &PgConfig,
    up: &[OsdId],
    wanted: Option<&[Option<OsdId>]>,
) -> BTreeSet<SPgId> {
    let Some(wanted) = wanted else {
        let is_member = config.in_sync.contains(&osd) || up.contains(&osd);
        return is_member.then_some(SPgId::replicated(pg)).into_iter().collect();
    };
    let all = shards(osd, &config.acting).chain(shards(osd, wanted));
    all.map(|shard| SPgId { pg, shard }).collect()
}

/// Who has which shard of a PG, and who learns which: all that `wanted` has elsewhere.
fn holders(config: &PgConfig, wanted: &[Option<OsdId>]) -> (Vec<Option<OsdId>>, Vec<Option<OsdId>>) {
    let now = |at| config.acting.get(at).copied().flatten();
    let learns = |(at, osd): (usize, &Option<OsdId>)| osd.filter(|_| *osd != now(at));
    let learners = wanted.iter().enumerate().map(learns).collect();
    (config.acting.clone(), learners)
}

fn groups(osd: OsdId, state: &ClusterState, up: &UpSets) -> BTreeMap<SPgId, Group> {
    let mut groups = BTreeMap::new();
    for (pg, config) in state.pgs.iter() {
        let (Some(Up { set: up, primary }), Some(pool)) = (up.get(&pg), state.osdmap.pool(pg.pool)) else {
            continue;
        };
        // Most groups of a large cluster are elsewhere.
        if !config.in_sync.contains(&osd) && !up.contains(&osd) {
            continue;
        }
        let wanted = pool
            .is_erasure()
            .then(|| places::target(&config.acting, &places::listed(up), usize::from(pool.size)));
        // Of shards those who are to have one in the end, in the shards' order: CRUSH may list them elsewhere, or nobody.
        let to_be = match &wanted {
            None => up.clone(),
            Some(wanted) => {
                let mut all: Vec<OsdId> = wanted.iter().copied().flatten().collect();
                // An affinity says who leads; the first that is listed does so by itself, and CRUSH's order is not the shards'.
                if places::listed(up).into_iter().flatten().next() != Some(*primary) {
                    all.sort_by_key(|o| o != primary);
                }
                all
            }
        };
        let (acting, learners) = match &wanted {
            None => (Vec::new(), Vec::new()),
            Some(wanted) => holders(config, wanted),
        };
        let group = || Group {
            me: osd,
            interval: config.interval,
            primary: config.primary,
            in_sync: config.in_sync.clone(),
            up: to_be.clone(),
            size: u32::from(pool.size),
            min_size: u32::from(pool.min_size),
            acting: acting.clone(),
            learners: learners.clone(),
        };
        let slots = slots(osd, pg, config, up, wanted.as_deref());
        groups.extend(slots.into_iter().map(|slot| (slot, group())));
    }
    groups
}

/// How a pool's objects are cut into shards: as its profile says, which stays what it is as long as there is the pool.
fn coding(map: &OsdMap, pool: &PgPool, before: Option<&Arc<PoolView>>) -> Option<Arc<Coding>> {
    let code = map.code_of(pool)?;
    if let Some(view) = before.filter(|v| v.stripe_width == pool.stripe_width)
        && let Some(coding) = &view.coding
    {
        return Some(coding.clone());
    }
    let unit = u64::from(pool.stripe_width) / u64::from(code.k);
    let coding = Coding::new(usize::from(code.k), usize::from(code.m), unit);
    let coding = coding.map_err(|e| {
        let profile = &pool.erasure_code_profile;
        tracing::error!(
            "erasure code profile '{profile}', stripe width {}: {e}",
            pool.stripe_width
        );
    });
    coding.ok().map(Arc::new)
}

fn pool_view(state: &ClusterState, id: PoolId, pool: &PgPool, blocklist: Arc<Blocklist>) -> PoolView {
    let map = &state.osdmap;
    let mut removed = SnapIntervals::new();
    for (start, len) in map
        .removed_snaps_queue
        .get(&id)
        .into_iter()
        .flat_map(|s| s.ranges())
    {
        removed.insert(start, start + len);
    }
    PoolView {
        epoch: map.epoch,
        id,
        name: map.pool_name(id).unwrap_or_default().to_string(),
        applications: pool.application_metadata.clone(),
        pg_num: pool.pg_num,
        full: pool.flags & pool_flag::FULL != 0,
        full_quota: pool.flags & pool_flag::FULL_QUOTA != 0,
        eio: pool.flags & pool_flag::EIO != 0,
        pool_snaps_mode: pool.flags & pool_flag::POOL_SNAPS != 0,
        snap_seq: pool.snap_seq,
        snaps: pool.snaps.keys().rev().copied().collect(),
        removed_snaps: removed,
        erasure: pool.is_erasure(),
        coding: None,
        stripe_width: pool.stripe_width,
        ec_overwrites: pool.flags & pool_flag::EC_OVERWRITES != 0,
        blocklist,
        lives: Arc::new(lives(state, id)),
        full_osds: Arc::default(),
    }
}

/// Of the PGs that are not simply those that came with the pool.
fn lives(state: &ClusterState, id: PoolId) -> BTreeMap<u32, PgLife> {
    let of_pool = state.pgs.of_pool(id).filter(|(_, c)| c.life.epoch() > 0);
    let life = |(pg, c): (PgId, &PgConfig)| {
        let joined = c.life.joined.as_ref().map(|j| PgJoined {
            source: j.source,
            source_head: j.source_head,
            target_head: j.target_head,
            source_life: j.source_life,
            target_life: j.target_life,
            members: j.members.clone(),
        });
        let epoch = c.life.epoch();
        (pg.seed, PgLife { epoch, joined })
    };
    of_pool.map(life).collect()
}
