//! What is told to a collector of traces: no more than has room, and nothing where there is none.

use super::*;
use crate::ops::LiveOp;
use crate::ops::stages::Passed;
use crate::ops::traces::Tracer;

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let listed = osd.ops.begin(LiveOp {
            since: Duration::ZERO,
            client: Arc::new(rig.client()),
            tid: 7,
            pg: PgId::new(POOL, 0),
            oid: Bytes::from_static(b"an object"),
            first: Some(code::READ),
            count: 1,
            is_write: false,
            reached_pg: None,
        });
        let slow = Passed {
            bytes: 1,
            since: Duration::ZERO,
            reached_pg: None,
            executed: None,
            answered: Duration::from_secs(60),
            last: None,
        };
        let counted = |osd: &Osd| (osd.meters.osd.traces.get(), osd.meters.osd.traces_dropped.get());
        osd.trace(&listed, None, slow, 0);
        assert_eq!(counted(&osd), (0, 0), "there is no collector");
        let (out, mut told) = mpsc::channel(2);
        osd.tracer = Tracer::new(Some(out));
        for _ in 0..5 {
            osd.trace(&listed, None, slow, -2);
        }
        assert_eq!(counted(&osd), (2, 3));
        let said = crate::otlp(&[told.try_recv().unwrap()], "a");
        for text in [
            r#""stringValue":"pool""#,
            r#""stringValue":"an object""#,
            r#""intValue":"-2""#,
        ] {
            assert!(said.contains(text), "{text} in {said}");
        }
        osd.trace(&listed, None, slow, 0);
        assert_eq!(counted(&osd), (3, 3), "there is room again");
        // Whoever sends them is gone.
        drop(told);
        osd.trace(&listed, None, slow, 0);
        assert_eq!(counted(&osd), (3, 4));
        drop(listed);
        close(osd);
    });
}
