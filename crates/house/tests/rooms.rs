//! Rooms of a crate import only what the table lets them. Test code does not count; circles: `circles.rs`.

#![allow(clippy::unwrap_used)]

use house::modules::Modules;
use house::rooms::{ROOMS, crates, room_of};

#[test]
fn rooms_import_only_what_they_may() {
    let mut problems = Vec::new();
    for krate in crates() {
        for (module, uses) in Modules::of(krate).by_path() {
            let Some(room) = room_of(krate, &module) else {
                continue;
            };
            for used in uses {
                let name = room_of(krate, &used).map_or("", |r| r.name);
                if name != room.name && !room.imports.contains(&name) {
                    problems.push(format!("{krate}: {module} must not import {used}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_room_is_there() {
    for krate in crates() {
        let modules = Modules::of(krate).by_path();
        let of_crate = ROOMS.iter().filter(|r| r.krate == krate);
        let gone: Vec<&str> = of_crate
            .map(|r| r.name)
            .filter(|n| !modules.contains_key(*n))
            .collect();
        assert!(gone.is_empty(), "{krate} has no {gone:?}");
    }
}
