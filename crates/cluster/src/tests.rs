//! A cluster without a store: made, changed, read again.

use super::*;
use bytes::Bytes;
use create::first_rows;
use denc::Decode;
use rows::{Row, RowEvent, Write};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use types::osdmap::{Incremental, OsdMap, WEIGHT_OUT};
use types::pool::PgPool;
use types::{EntityAddr, EntityAddrVec, OsdId, Utime, Uuid};

/// What the store says, and the states of two processes: the one that commits, and one that follows it.
pub(crate) struct Rig {
    rows: BTreeMap<String, (Bytes, u64)>,
    pub(crate) state: ClusterState,
    followed: ClusterState,
}

fn load_of(rows: &BTreeMap<String, (Bytes, u64)>) -> ClusterState {
    let rows = rows.iter().map(|(key, (value, revision))| Row {
        key,
        value,
        revision: *revision,
    });
    load::load(&rows.collect::<Vec<_>>()).unwrap().unwrap()
}

impl Rig {
    pub(crate) fn new() -> Self {
        let options = CreateOptions {
            osds: vec![0, 1, 2],
            ..CreateOptions::new(Uuid([7; 16]), "a", addrs(3300).first())
        };
        let drawn = AtomicU8::new(0);
        let entropy = |buf: &mut [u8]| buf.fill(drawn.fetch_add(1, Ordering::Relaxed));
        let cx = auth::Context {
            now: Utime::ZERO,
            entropy: &entropy,
        };
        let mut rows = BTreeMap::new();
        write(&mut rows, first_rows(&options, &cx).unwrap(), 1);
        let state = load_of(&rows);
        Self {
            rows,
            followed: state.clone(),
            state,
        }
    }

    pub(crate) fn commit(&mut self, changes: Changes) {
        let (mut next, writes) = self.state.apply(changes, Utime::ZERO).unwrap();
        next.revision = self.state.revision + 1;
        let event = |w: &Write| match w {
            Write::Put { key, value } => (key.clone(), Some(value.clone())),
            Write::Delete { key } => (key.clone(), None),
        };
        let events: Vec<_> = writes.iter().map(event).collect();
        let events = events.iter().map(|(key, value)| RowEvent {
            key,
            value: value.as_ref(),
            revision: next.revision,
        });
        self.followed = load::advance(&self.followed, &events.collect::<Vec<_>>()).unwrap();
        write(&mut self.rows, writes, next.revision);
        self.state = next;
    }

    fn change_map(&mut self, f: impl FnOnce(&OsdMap, &mut Incremental)) {
        let mut changes = Changes::none();
        f(&self.state.osdmap, changes.inc(&self.state, Utime::ZERO));
        self.commit(changes);
    }

    fn boot(&mut self, id: OsdId) {
        let (changes, done) = boot::decide(&self.state, &boot_of(id), Utime::ZERO);
        done.unwrap();
        self.commit(changes);
    }

    fn down(&mut self, id: OsdId) {
        self.commit(boot::down(&self.state, &[id], Utime::ZERO));
    }

    fn map(&self) -> &OsdMap {
        &self.state.osdmap
    }

    /// Who follows the changes, and who reads everything anew, know the very same.
    pub(crate) fn check(&self, what: &str) {
        let fresh = load_of(&self.rows);
        for other in [&self.followed, &fresh] {
            assert_eq!(print(other), print(&self.state), "{what}");
            assert_eq!(other.pgs, self.state.pgs, "{what}");
            assert_eq!(
                (&other.fsmap, &other.mds),
                (&self.state.fsmap, &self.state.mds),
                "{what}"
            );
            assert_eq!(other.fences, self.state.fences, "{what}");
        }
    }
}

/// A transaction may name a key once.
fn write(rows: &mut BTreeMap<String, (Bytes, u64)>, writes: Vec<Write>, revision: u64) {
    let keys: std::collections::BTreeSet<&str> = writes.iter().map(Write::key).collect();
    assert_eq!(keys.len(), writes.len());
    for w in writes {
        match w {
            Write::Put { key, value } => drop(rows.insert(key, (value, revision))),
            Write::Delete { key } => drop(rows.remove(&key)),
        }
    }
}

fn addrs(port: u16) -> EntityAddrVec {
    EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1))
}

fn boot_of(id: OsdId) -> OsdBoot {
    OsdBoot {
        id,
        uuid: Uuid([id as u8 + 1; 16]),
        client_addrs: addrs(6800 + id as u16),
        cluster_addrs: addrs(6800 + id as u16),
        hb_back_addrs: addrs(6800 + id as u16),
        hb_front_addrs: addrs(6800 + id as u16),
        size_bytes: 64 << 30,
        host: "vm.example.org".into(),
        device_class: "ssd".into(),
        features: types::release::feature::ALL_PACIFIC,
        metadata: [("hostname".to_string(), "vm".to_string())].into(),
    }
}

fn add_pool(inc: &mut Incremental, id: i64, pg_num: u32) {
    let pool = PgPool {
        size: 1,
        min_size: 1,
        pg_num,
        pgp_num: pg_num,
        pg_num_target: pg_num,
        pgp_num_target: pg_num,
        pg_num_pending: pg_num,
        ..PgPool::default()
    };
    inc.new_pool_max = Some(id as i32);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, format!("pool{id}"));
}

/// Everything that a snapshot says, for comparing.
fn print(s: &ClusterState) -> String {
    let map = s.osdmap.encode_for(u64::MAX);
    format!(
        "{} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?}",
        s.version,
        s.fsid,
        s.monmap,
        s.mgrmap,
        map,
        s.config,
        s.config_keys,
        s.auth,
        s.rotating,
        s.mutes,
        s.osd_metadata,
        s.asked_down,
        s.global_id_limit,
        s.log,
        s.history,
        s.scrubs,
        s.audit,
        s.snap_owners,
    )
}

#[test]
fn every_epoch_of_the_window_can_be_rebuilt() {
    let mut c = Rig::new();
    let mut maps = vec![c.state.osdmap.clone()];
    let flags = |e: u32| if e % 2 == 0 { 0x588000 } else { 0x588080 };
    for _ in 0..(history::WINDOW_MAX + 3 * history::FULL_EVERY) {
        c.change_map(|map, inc| inc.new_flags = Some(flags(map.epoch)));
        maps.push(c.state.osdmap.clone());
    }
    let h = &c.state.history;
    assert!(
        h.latest() - h.first() >= history::WINDOW_MAX,
        "{}..{}",
        h.first(),
        h.latest()
    );
    assert!(h.latest() - h.first() < history::WINDOW_MAX + 2 * history::FULL_EVERY);
    for map in &maps {
        let full = h.full(map.epoch);
        assert_eq!(full.is_some(), map.epoch >= h.first(), "epoch {}", map.epoch);
        if let Some(full) = full {
            assert_eq!(full, map.encode_for(u64::MAX).0, "epoch {}", map.epoch);
        }
        let inc = h.incremental(map.epoch);
        assert_eq!(inc.is_some(), map.epoch > h.first(), "epoch {}", map.epoch);
        if let Some(inc) = inc {
            let inc = Incremental::from_bytes(&inc).unwrap();
            assert_eq!(inc.full_crc, map.encode_for(u64::MAX).1);
        }
    }
    c.check("a window");
    let h = load_of(&c.rows).history;
    assert_eq!(Some(h.first()), h.fulls.keys().next().copied());
    assert!(h.incs.len() as u32 <= history::WINDOW_MAX + 2 * history::FULL_EVERY);
}

/// Marking an OSD out makes CRUSH choose others, which have no data.
#[test]
fn groups_stay_where_their_data_is() {
    let mut c = Rig::new();
    for id in 0..3 {
        c.boot(id);
    }
    let acting = |map: &OsdMap| {
        map.pgs()
            .map(|pg| map.pg_to_up_acting(pg).acting)
            .collect::<Vec<_>>()
    };
    c.change_map(|_, inc| add_pool(inc, 1, 32));
    let home = acting(c.map());
    assert!((0..3).all(|id| home.contains(&vec![id])));
    c.change_map(|map, inc| inc.mark_out(map, 1));
    assert_eq!(c.map().weight(1), WEIGHT_OUT);
    assert_eq!(acting(c.map()), home, "out");
    assert!(!c.map().pg_temp.is_empty());
    c.boot(3);
    assert_eq!(acting(c.map()), home, "a fourth OSD");
    c.change_map(|map, inc| inc.mark_in(map, 1));
    assert_eq!(acting(c.map()), home, "in again");
    // A group made now goes where CRUSH says, and one whose OSD is down has no other home.
    c.change_map(|_, inc| add_pool(inc, 2, 32));
    let of_two = |map: &OsdMap| {
        map.pgs()
            .filter(|pg| pg.pool == 2)
            .map(|pg| map.pg_to_up_acting(pg).acting)
            .collect::<Vec<_>>()
    };
    let home_two = of_two(c.map());
    assert!(home_two.contains(&vec![3]));
    c.down(3);
    c.change_map(|map, inc| inc.set_weight(0, map.weight(0) / 2));
    c.boot(3);
    assert_eq!(
        of_two(c.map()),
        home_two,
        "what changed while it was down moved nothing"
    );
    // CRUSH back as it was at first: nothing needs an override any more.
    c.change_map(|_, inc| inc.set_weight(0, 0x10000));
    c.change_map(|map, inc| inc.crush_mut(map).reweight_item("osd.3", 0).unwrap());
    assert!(c.map().pg_temp.keys().all(|pg| pg.pool == 2));
}

/// What another process commits is taken in from its changes alone, and gives the very state.
#[test]
fn changes_alone_lead_to_the_same_state() {
    let mut c = Rig::new();
    for id in 0..3 {
        c.boot(id);
    }
    c.check("boots");
    c.change_map(|_, inc| add_pool(inc, 1, 600));
    c.change_map(|_, inc| add_pool(inc, 2, 8));
    c.down(1);
    c.check("pools");
    c.change_map(|_, inc| {
        let _ = inc.old_pools.insert(1);
    });
    c.check("a pool gone");
    let set = |who: &str, name: &str, value: &str| Change::ConfigSet {
        who: who.into(),
        name: name.into(),
        value: value.into(),
    };
    let snap = |snap| Change::SnapMade {
        pool: 1,
        snap,
        owner: types::AuthName::new(types::EntityKind::Client, "a"),
    };
    let wish = |seed, on: bool| Change::Scrubs {
        pool: 1,
        wishes: vec![(
            seed,
            on.then_some(ScrubWish {
                deep: true,
                repair: false,
                number: 5,
            }),
        )],
    };
    let lists = [
        vec![set("osd", "a", "1"), set("osd", "b", "2")],
        vec![
            Change::ConfigRm {
                who: "osd".into(),
                name: "a".into(),
            },
            Change::ConfigKeySet {
                key: "x/y".into(),
                value: "v".into(),
            },
        ],
        vec![
            Change::ConfigKeyRm { key: "x/y".into() },
            Change::AuthRm {
                name: types::AuthName::new(types::EntityKind::Osd, "2"),
            },
            Change::GlobalIdLimit(1 << 20),
        ],
        vec![wish(4, true), wish(5, true)],
        vec![wish(4, false)],
        vec![snap(2), snap(3), snap(900)],
        vec![Change::SnapRemoved { pool: 1, snap: 3 }],
        vec![Change::SnapRemoved { pool: 1, snap: 2 }, snap(901)],
    ];
    for list in lists {
        c.commit(Changes {
            list,
            ..Changes::default()
        });
    }
    c.check("settings and keys");
    // Past the windows of the log and of the maps, so that their oldest entries go.
    for i in 0..LOG_MAX + 40 {
        let level = types::clusterlog::LogLevel::Info;
        let entry = c.state.log_entry(Utime::ZERO, level, format!("{i}"));
        let mut changes = Changes::one(Change::Log(entry.clone()));
        changes.push(Change::Audit(entry));
        changes.push(set("osd", "n", &i.to_string()));
        changes.inc(&c.state, Utime::ZERO);
        c.commit(changes);
    }
    c.check("windows moved on");
}

/// The rows of an entity whose key is replaced, and whose time comes; and the epochs by which sessions go on or end.
#[test]
fn keys_that_are_replaced_and_keys_that_end() {
    let mut c = Rig::new();
    let name = types::AuthName::new(types::EntityKind::Client, "two");
    let key = |n: u8| auth::CryptoKey::new([n; auth::SECRET_LEN], Utime::ZERO);
    let entity = |n: u8, pending: Option<u8>, ended: Option<bool>| auth::EntityAuth {
        pending: pending.map(key),
        expiry: ended.map(|ended| auth::Expiry {
            at: Utime { sec: 9, nsec: 0 },
            ended,
        }),
        ..auth::EntityAuth::new(key(n))
    };
    let put = |c: &mut Rig, entity: auth::EntityAuth| {
        c.commit(Changes::one(Change::AuthPut {
            name: name.clone(),
            entity,
        }));
        c.check("an entity");
        c.state.auth.get(&name).map(|e| e.epoch)
    };
    let first = put(&mut c, entity(1, None, None));
    assert_eq!(put(&mut c, entity(1, Some(2), None)), first);
    assert_eq!(
        put(&mut c, entity(2, None, None)),
        first,
        "the pending one, committed"
    );
    assert_eq!(put(&mut c, entity(2, None, Some(false))), first);
    let ended = put(&mut c, entity(2, None, Some(true)));
    assert!(ended > first, "nothing stays open");
    assert_eq!(put(&mut c, entity(2, None, None)), ended);
    assert!(
        put(&mut c, entity(1, None, None)) > ended,
        "the first key is another one by now"
    );
}

#[test]
fn whom_an_entry_of_the_blocklist_fenced_is_known_as_long_as_it_stands() {
    let mut c = Rig::new();
    let at = |port: u16, nonce| EntityAddr::msgr2(([10, 0, 0, 5], port).into(), nonce);
    let instance = |global_id, addr: EntityAddr| Instance {
        global_id,
        addr,
        from: addr.sock.map(|s| s.ip()),
    };
    let (one, other) = (at(0, 7).to_blocklist_form(), at(0, 8).to_blocklist_form());
    let seen = [
        instance(4200, at(0, 7)),
        instance(4201, at(0, 8)),
        instance(4202, at(0, 9)),
    ];
    let edit = |c: &mut Rig, add: &[EntityAddr], remove: &[EntityAddr]| {
        let mut changes = Changes::none();
        let inc = changes.inc(&c.state, Utime::ZERO);
        inc.new_blocklist.extend(add.iter().map(|e| (*e, Utime::ZERO)));
        inc.old_blocklist.extend(remove);
        for e in add {
            changes.list.extend(c.state.fence_by(*e, &seen[..1]));
        }
        c.commit(changes);
    };
    let ids = |s: &ClusterState| s.fenced_ids().collect::<Vec<_>>();
    let fence = |c: &Rig| c.state.fence(&seen, Utime::ZERO);
    assert!(fence(&c).is_empty(), "nobody is on the list");
    // With the entry itself; and by who sees it later, in an epoch of its own.
    edit(&mut c, &[one, other], &[]);
    assert_eq!(ids(&c.state), [4200]);
    let epoch = c.map().epoch;
    let changes = fence(&c);
    c.commit(changes);
    assert_eq!((ids(&c.state), c.map().epoch), (vec![4200, 4201], epoch + 1));
    assert!(fence(&c).is_empty(), "nothing is written twice");
    c.check("fenced");
    assert!(c.state.is_fenced_id(4201) && !c.state.is_fenced_id(4202));
    edit(&mut c, &[], &[one]);
    assert_eq!(ids(&c.state), [4201]);
    c.check("the entry is gone");
}
