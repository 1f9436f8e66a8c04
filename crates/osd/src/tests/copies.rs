//! Three OSDs of one pool of three copies, by the wire: writes, one that goes and comes back, another primary.

use super::*;
use cluster::Change;
use types::osdmap::osd_state;

const OSDS: i32 = 3;

fn dir(osd: i32) -> String {
    format!("osd.{osd}")
}

async fn rig() -> (Rig, BTreeMap<i32, Loop>) {
    let rig = Rig::bare((0..OSDS).collect()).await;
    let mut loops = BTreeMap::new();
    for osd in 0..OSDS {
        rig.mkfs(&dir(osd), 20 + osd as u8);
        loops.insert(osd, start_osd(&rig, osd, &dir(osd)).await);
    }
    rig.add_pool(3, 2).await;
    (rig, loops)
}

async fn halt(loops: &mut BTreeMap<i32, Loop>, osd: i32) {
    let l = loops.remove(&osd).unwrap();
    l.stop.send(true).unwrap();
    l.ended.await.unwrap().unwrap();
}

/// Waits until every PG has so many copies in sync.
async fn copies(rig: &Rig, n: usize) {
    let mut state = rig.cluster.subscribe_state();
    let all = |s: &Arc<cluster::ClusterState>| {
        let mut pgs = s.pgs.iter().peekable();
        pgs.peek().is_some() && pgs.all(|(_, c)| c.in_sync.len() == n)
    };
    state.wait_for(all).await.unwrap();
}

/// Sends the operation to whoever leads now, again and again as clients do, until it is answered.
async fn ask(rig: &Rig, tid: u64, object: usize, op: OsdOp) -> MOSDOpReply {
    let mut patience = Duration::from_secs(2);
    loop {
        let map = rig.cluster.osdmap();
        let (_, pg) = map.object_to_pg(POOL, b"", b"", name(object).as_bytes()).unwrap();
        if let Some(primary) = map.acting_primary(pg)
            && let Some(at) = map.osd(primary).and_then(|o| o.client_addrs.0.first().copied())
        {
            let try_once = async {
                let mut client = connect(at).await;
                let mut m = rig.request(tid, object, op.clone());
                (m.reqid.name, m.reqid.tid) = (EntityName::client(12), tid);
                client.send(m.to_message()).await.unwrap();
                reply(&mut client).await
            };
            if let Ok(answer) = io::task::timeout(patience, try_once).await {
                return answer;
            }
            // On a busy machine an answer may take longer than the first attempts wait.
            patience *= 2;
        }
        io::task::sleep(Duration::from_millis(50)).await;
    }
}

async fn put(rig: &Rig, tid: u64, object: usize, data: Vec<u8>) {
    assert_eq!(ask(rig, tid, object, write(0, data)).await.result, 0);
}

async fn check(rig: &Rig, tid: u64, object: usize, data: &[u8]) {
    let r = ask(rig, tid, object, read(0, data.len())).await;
    assert_eq!((r.result, r.ops[0].outdata.len()), (0, data.len()));
    assert!(r.ops[0].outdata == data, "object {object}");
}

#[test]
fn an_osd_goes_and_comes_back_and_leads() {
    local(async {
        let (rig, mut loops) = rig().await;
        copies(&rig, 3).await;
        for o in 0..OBJECTS {
            put(&rig, 1 + o as u64, o, content(o)).await;
        }
        halt(&mut loops, 2).await;
        copies(&rig, 2).await;
        for o in 0..OBJECTS / 2 {
            put(&rig, 100 + o as u64, o, vec![o as u8; 5000]).await;
        }
        loops.insert(2, start_osd(&rig, 2, &dir(2)).await);
        copies(&rig, 3).await;
        // What osd.2 missed it has now, and leads with it when another is gone.
        for gone in [0, 1] {
            halt(&mut loops, gone).await;
            for o in 0..OBJECTS {
                let mut want = content(o);
                if o < OBJECTS / 2 {
                    want[..5000].fill(o as u8);
                }
                check(&rig, 1000 + 100 * gone as u64 + o as u64, o, &want).await;
            }
            if gone == 0 {
                loops.insert(0, start_osd(&rig, 0, &dir(0)).await);
                copies(&rig, 3).await;
            }
        }
        halt(&mut loops, 0).await;
        // Two of three are required: the one that is left must not take a write.
        let alone =
            io::task::timeout(Duration::from_secs(2), ask(&rig, 2000, 0, write(0, vec![9; 10]))).await;
        assert!(alone.is_err(), "{alone:?}");
        loops.insert(0, start_osd(&rig, 0, &dir(0)).await);
        put(&rig, 2001, 0, vec![7; 10]).await;
        halt(&mut loops, 0).await;
        halt(&mut loops, 2).await;
    });
}

/// `ceph osd down` of one that serves: it hears of it, steps down by itself, and comes back.
#[test]
fn one_that_is_asked_to_goes_down_by_itself_and_comes_back() {
    local(async {
        let (rig, mut loops) = rig().await;
        copies(&rig, 3).await;
        for round in 0..2u64 {
            let osd = round as i32;
            let up_from = |s: &cluster::ClusterState| s.osdmap.osd(osd).unwrap().info.up_from;
            let before = up_from(&rig.cluster.state());
            let ask = |state: &cluster::ClusterState| {
                let up_from = Some(up_from(state));
                (Changes::one(Change::AskDown { id: osd, up_from }), ())
            };
            rig.cluster.commit(ask).await.unwrap();
            put(&rig, 10 + round, 0, vec![round as u8; 3000]).await;
            let mut state = rig.cluster.subscribe_state();
            let back = |s: &Arc<cluster::ClusterState>| s.osdmap.is_up(osd) && up_from(s) > before;
            assert!(state.wait_for(back).await.unwrap().asked_down.is_empty());
            copies(&rig, 3).await;
            check(&rig, 20 + round, 0, &[round as u8; 3000]).await;
        }
        for osd in 0..OSDS {
            halt(&mut loops, osd).await;
        }
    });
}

#[test]
fn one_that_is_marked_down_while_it_lives_comes_back() {
    local(async {
        let (rig, mut loops) = rig().await;
        copies(&rig, 3).await;
        for round in 0..3u64 {
            let osd = round as i32;
            let down = |state: &cluster::ClusterState| {
                let mut changes = Changes::none();
                changes
                    .inc(state, Utime::ZERO)
                    .new_state
                    .insert(osd, osd_state::UP);
                (changes, ())
            };
            rig.cluster.commit(down).await.unwrap();
            put(&rig, 10 + round, 0, vec![round as u8; 3000]).await;
            let mut state = rig.cluster.subscribe_state();
            state.wait_for(|s| s.osdmap.is_up(osd)).await.unwrap();
            copies(&rig, 3).await;
            check(&rig, 20 + round, 0, &[round as u8; 3000]).await;
        }
        for osd in 0..OSDS {
            halt(&mut loops, osd).await;
        }
    });
}
