//! Writes and reads map files, for the tests that compare with Ceph's own tools (tests/maps).
//!
//!     maptool crush-compile TEXT OUT     maptool crush-decompile IN
//!     maptool osdmap-new OUT OSDS        maptool osdmap-pgs IN
//!     maptool osdmap-export-crush IN OUT maptool crush-edit OUT
//!     maptool monmap-new OUT
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use crush::{FailureDomain, RuleKind, WEIGHT_ONE};
use denc::{Decode, Encode};
use std::process::ExitCode;
use types::osdmap::{Incremental, NewCluster, NewPool, OsdBoot};
use types::{EntityAddr, EntityAddrVec, OsdMap, Utime, Uuid};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("maptool: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["crush-compile", text, out] => {
            let map = crush::compile(&std::fs::read_to_string(text)?)?;
            map.validate()?;
            std::fs::write(out, map.to_bytes())?;
        }
        ["crush-decompile", file] => {
            let map = crush::CrushMap::from_bytes(&std::fs::read(file)?.into())?;
            print!("{}", map.decompile());
        }
        ["crush-edit", out] => std::fs::write(out, edited()?.to_bytes())?,
        ["osdmap-new", out, osds] => std::fs::write(out, new_map(osds.parse()?)?.to_bytes())?,
        ["osdmap-pgs", file] => print_pgs(&OsdMap::from_bytes(&std::fs::read(file)?.into())?),
        ["osdmap-export-crush", file, out] => {
            let map = OsdMap::from_bytes(&std::fs::read(file)?.into())?;
            std::fs::write(out, map.crush.to_bytes())?;
        }
        ["monmap-new", out] => {
            let mon = |name: &str, port: u16| -> Result<_, Failure> {
                let addr = EntityAddr::msgr2(format!("127.0.0.1:{port}").parse()?, 0);
                Ok((name.to_string(), EntityAddrVec::one(addr)))
            };
            let mons = [mon("b", 3300)?, mon("a", 3301)?];
            let created = Utime {
                sec: 1_700_000_000,
                nsec: 0,
            };
            let map = types::MonMap::new(Uuid(*b"0123456789abcdef"), created, mons);
            std::fs::write(out, map.to_bytes())?;
        }
        _ => return Err("see the head of maptool.rs".into()),
    }
    Ok(())
}

/// A map that went through every kind of edit.
fn edited() -> Result<crush::CrushMap, Failure> {
    let mut map = crush::CrushMap::new_default(FailureDomain::Host);
    for osd in 0..12 {
        let (host, rack) = (format!("h{}", osd / 3), format!("r{}", osd / 6));
        let place = [
            ("host", host.as_str()),
            ("rack", rack.as_str()),
            ("root", "default"),
        ];
        map.add_osd(osd, WEIGHT_ONE + osd as u32 * 1000, &place)?;
        map.set_device_class(osd, if osd % 3 == 0 { "ssd" } else { "hdd" })?;
    }
    map.add_simple_rule("fast", "default", "host", Some("ssd"), RuleKind::Replicated)?;
    map.add_simple_rule("ec", "default", "osd", None, RuleKind::Erasure)?;
    map.reweight_item("osd.4", 3 * WEIGHT_ONE)?;
    map.move_item("h3", &[("rack", "r0")])?;
    map.remove_item("osd.7")?;
    map.rename_item("r1", "r-one")?;
    map.add_bucket("spare", "room")?;
    map.validate()?;
    Ok(map)
}

/// The map of a small cluster after its OSDs booted and a pool was made.
fn new_map(osds: i32) -> Result<OsdMap, Failure> {
    let cluster = NewCluster {
        fsid: Uuid(*b"0123456789abcdef"),
        created: Utime {
            sec: 1_700_000_000,
            nsec: 0,
        },
        failure_domain: FailureDomain::Osd,
    };
    let mut map = OsdMap::empty(cluster.fsid);
    map.apply(&cluster.first())?;
    let mut inc = Incremental::next_after(&map, map.modified);
    for i in 0..osds {
        let id = inc.create_osd(&map, Uuid([i as u8 + 1; 16])).ok_or("no slot")?;
        inc.crush_mut(&map)
            .add_osd(id, WEIGHT_ONE, &[("host", "vm"), ("root", "default")])?;
        inc.crush_mut(&map).set_device_class(id, "ssd")?;
    }
    (map, _, _) = map.seal(&mut inc, u64::MAX)?;
    let mut inc = Incremental::next_after(&map, map.modified);
    for i in 0..osds {
        let addr = |port: i32| -> Result<EntityAddrVec, Failure> {
            let sock = format!("127.0.0.1:{}", 6800 + 4 * i + port).parse()?;
            Ok(EntityAddrVec::one(EntityAddr::msgr2(sock, 1)))
        };
        let boot = OsdBoot {
            client_addrs: addr(0)?,
            cluster_addrs: addr(1)?,
            hb_back_addrs: addr(2)?,
            hb_front_addrs: addr(3)?,
            features: types::release::feature::ALL_PACIFIC,
        };
        inc.boot_osd(&map, i, &boot);
    }
    let pool = NewPool {
        name: "rbd".to_string(),
        size: osds.min(3) as u8,
        application: "rbd".to_string(),
        ..NewPool::default()
    };
    inc.create_pool(&map, &pool);
    (map, _, _) = map.seal(&mut inc, u64::MAX)?;
    Ok(map)
}

/// In the form of `osdmaptool --test-map-pgs-dump-all`.
fn print_pgs(map: &OsdMap) {
    let set = |v: &[i32]| v.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    for pg in map.pgs() {
        let m = map.pg_mapping(pg);
        let s = &m.sets;
        println!(
            "{pg}\traw ([{}], p{}) up ([{}], p{}) acting ([{}], p{})",
            set(&m.raw),
            m.raw_primary,
            set(&s.up),
            s.up_primary,
            set(&s.acting),
            s.acting_primary
        );
    }
}
