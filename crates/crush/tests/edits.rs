//! Editing a map: any sequence of edits leaves a map that is valid, sums up, survives its encoding, and has
//! shadow trees that hold exactly the devices of their class; a refused edit leaves no trace.
#![allow(clippy::unwrap_used)]

use crush::{ChooseArg, ChooseArgs, CrushMap, FailureDomain, RuleKind, WEIGHT_ONE, bucket_slot};
use denc::{Decode, Encode};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Edit {
    Add {
        osd: i32,
        weight: u32,
        host: u8,
        rack: u8,
    },
    Class {
        osd: i32,
        class: Option<u8>,
    },
    Reweight {
        osd: i32,
        weight: u32,
    },
    MoveHost {
        host: u8,
        rack: u8,
    },
    Remove {
        osd: i32,
    },
    RemoveHost {
        host: u8,
    },
    Rule {
        n: u8,
        class: Option<u8>,
    },
    RemoveRule {
        n: u8,
    },
}

fn edit() -> impl Strategy<Value = Edit> {
    let osd = 0..12i32;
    let weight = 0..4 * WEIGHT_ONE;
    let class = prop::option::of(0..3u8);
    prop_oneof![
        4 => (osd.clone(), weight.clone(), 0..5u8, 0..3u8)
            .prop_map(|(osd, weight, host, rack)| Edit::Add { osd, weight, host, rack }),
        2 => (osd.clone(), class.clone()).prop_map(|(osd, class)| Edit::Class { osd, class }),
        1 => (osd.clone(), weight).prop_map(|(osd, weight)| Edit::Reweight { osd, weight }),
        1 => (0..5u8, 0..3u8).prop_map(|(host, rack)| Edit::MoveHost { host, rack }),
        1 => osd.prop_map(|osd| Edit::Remove { osd }),
        1 => (0..5u8).prop_map(|host| Edit::RemoveHost { host }),
        1 => (0..4u8, class).prop_map(|(n, class)| Edit::Rule { n, class }),
        1 => (0..4u8).prop_map(|n| Edit::RemoveRule { n }),
    ]
}

fn apply(m: &mut CrushMap, e: &Edit) -> Result<(), crush::EditError> {
    let host_name = |h: &u8| format!("h{h}");
    let rack_name = |r: &u8| format!("r{r}");
    let class_name = |c: &u8| format!("c{c}");
    match e {
        Edit::Add {
            osd,
            weight,
            host,
            rack,
        } => {
            let (h, r) = (host_name(host), rack_name(rack));
            m.add_osd(*osd, *weight, &[("root", "default"), ("rack", &r), ("host", &h)])
        }
        Edit::Class { osd, class: Some(c) } => m.set_device_class(*osd, &class_name(c)),
        Edit::Class { osd, class: None } => m.remove_device_class(*osd),
        Edit::Reweight { osd, weight } => m.reweight_item(&format!("osd.{osd}"), *weight),
        Edit::MoveHost { host, rack } => m.move_item(
            &host_name(host),
            &[("rack", &rack_name(rack)), ("root", "default")],
        ),
        Edit::Remove { osd } => m.remove_item(&format!("osd.{osd}")),
        Edit::RemoveHost { host } => m.remove_item(&host_name(host)),
        Edit::Rule { n, class } => {
            let class = class.as_ref().map(class_name);
            m.add_simple_rule(
                &format!("rule{n}"),
                "default",
                "host",
                class.as_deref(),
                RuleKind::Replicated,
            )
            .map(|_| ())
        }
        Edit::RemoveRule { n } => m.remove_rule(&format!("rule{n}")),
    }
}

fn check(m: &CrushMap) {
    m.validate().unwrap();
    assert_eq!(&CrushMap::from_bytes(&m.to_bytes()).unwrap(), m);
    let named = m.item_names.keys().next_back().copied().unwrap_or(-1);
    assert_eq!(m.max_devices, named.max(-1) + 1);
    for b in m.iter_buckets() {
        assert_eq!(b.weight, b.item_weights().iter().sum::<u32>(), "{}", b.id);
        for (i, item) in b.items.iter().enumerate().filter(|(_, i)| **i < 0) {
            assert_eq!(b.item_weight(i), m.bucket(*item).unwrap().weight);
        }
    }
    for (bucket, shadows) in &m.shadows {
        for (class, shadow) in shadows {
            let of_class = |d: &i32| m.class_of.get(d) == Some(class);
            let want: Vec<i32> = m.devices_under(*bucket).into_iter().filter(of_class).collect();
            assert_eq!(m.devices_under(*shadow), want);
        }
    }
    let classes = m.class_names.len();
    for b in m.iter_buckets().filter(|b| !m.is_shadow(b.id)) {
        assert_eq!(m.shadows.get(&b.id).map_or(0, |s| s.len()), classes, "{}", b.id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_edits_leave_a_good_map(edits in prop::collection::vec(edit(), 1..40)) {
        let mut m = CrushMap::new_default(FailureDomain::Host);
        let root = ChooseArg { weight_set: vec![vec![]], ids: vec![] };
        let slot = bucket_slot(-1).unwrap() as u32;
        m.choose_args.insert(-1, ChooseArgs { by_slot: [(slot, root)].into() });
        let mut done = 0;
        for e in &edits {
            let before = m.clone();
            match apply(&mut m, e) {
                Ok(()) => done += 1,
                Err(_) => prop_assert_eq!(&before, &m, "a refused edit left a trace"),
            }
            check(&m);
            // The override of the root follows its items.
            let row = &m.choose_args[&-1].by_slot[&slot].weight_set[0];
            prop_assert_eq!(row.len(), m.bucket(-1).unwrap().items.len());
        }
        prop_assert!(done > 0 || edits.len() < 20);
        crush::compile(&m.decompile()).unwrap().validate().unwrap();
    }
}

/// The shadow trees must not keep the number of a removed device in `max_devices`.
#[test]
fn a_removed_device_of_a_class_leaves_no_number() {
    let mut m = CrushMap::new_default(FailureDomain::Host);
    m.add_osd(11, WEIGHT_ONE, &[("root", "default"), ("host", "h")])
        .unwrap();
    m.set_device_class(11, "ssd").unwrap();
    m.remove_item("osd.11").unwrap();
    check(&m);
    assert_eq!(m.max_devices, 0);
}

#[test]
fn default_maps_place_on_hosts_or_osds() {
    for (domain, spread) in [(FailureDomain::Osd, false), (FailureDomain::Host, true)] {
        let mut m = CrushMap::new_default(domain);
        for osd in 0..9 {
            let host = format!("h{}", osd / 3);
            m.add_osd(osd, WEIGHT_ONE, &[("host", &host), ("root", "default")])
                .unwrap();
        }
        let weights = vec![WEIGHT_ONE; 9];
        let mut same_host = 0;
        for x in 0..1000 {
            let set = m.do_rule(0, x, 3, &weights, -1);
            assert_eq!(set.len(), 3, "{x}");
            let mut hosts: Vec<i32> = set.iter().map(|o| o / 3).collect();
            hosts.sort_unstable();
            hosts.dedup();
            same_host += usize::from(hosts.len() < 3);
        }
        assert_eq!(same_host == 0, spread, "{domain:?}: {same_host}");
    }
}

#[test]
fn refusals_say_why() {
    let mut m = CrushMap::new_default(FailureDomain::Host);
    m.add_osd(0, WEIGHT_ONE, &[("host", "a"), ("root", "default")])
        .unwrap();
    let check = |r: Result<(), crush::EditError>, words: &str| {
        let e = r.unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    };
    check(
        m.add_osd(1, 1, &[("planet", "x")]),
        "type 'planet' does not exist",
    );
    check(m.add_osd(1, 1, &[("root", "a")]), "not of type");
    check(m.add_osd(1, 1, &[]), "no place");
    check(m.add_bucket("a~b", "host").map(|_| ()), "characters");
    check(m.add_bucket("a", "host").map(|_| ()), "in use");
    check(m.remove_item("a"), "not empty");
    check(m.remove_item("default"), "not empty");
    check(m.remove_item("nothing"), "does not exist");
    check(m.set_device_class(7, "ssd"), "osd.7");
    check(m.remove_rule("x"), "does not exist");
    check(
        m.add_simple_rule("x", "default", "host", Some("ssd"), RuleKind::Replicated)
            .map(|_| ()),
        "class 'ssd'",
    );
    let mut empty = CrushMap::new_default(FailureDomain::Host);
    check(empty.remove_item("default"), "in use by a rule");
    m.add_bucket("r", "rack").unwrap();
    m.move_item("a", &[("rack", "r")]).unwrap();
    check(m.move_item("r", &[("host", "a")]), "no place");
}

/// A renamed class keeps its devices, and the rules that take its shadows place as before.
#[test]
fn a_renamed_class_places_as_before() {
    let mut m = CrushMap::new_default(FailureDomain::Osd);
    for osd in 0..4 {
        m.add_osd(osd, WEIGHT_ONE, &[("root", "default"), ("host", "h")])
            .unwrap();
        m.set_device_class(osd, if osd < 2 { "hdd" } else { "ssd" })
            .unwrap();
    }
    let rule = m
        .add_simple_rule("fast", "default", "osd", Some("ssd"), RuleKind::Replicated)
        .unwrap();
    let place = |m: &CrushMap| {
        (0..64)
            .map(|x| m.do_rule(rule, x, 2, &[0x10000; 4], 0))
            .collect::<Vec<_>>()
    };
    let before = place(&m);
    m.rename_class("ssd", "nvme").unwrap();
    assert_eq!(place(&m), before);
    assert!(m.item_id("default~nvme").is_some() && m.item_id("default~ssd").is_none());
    assert!(m.rename_class("ssd", "x").is_err() && m.rename_class("hdd", "nvme").is_err());
    m.validate().unwrap();
}
