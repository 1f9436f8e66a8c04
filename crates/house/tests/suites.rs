//! Tests that no run finds cannot fail: each folder of system tests is among those that a run without arguments looks in.

#![allow(clippy::unwrap_used)]

use house::source::root;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn each_folder_of_system_tests_is_run() {
    let tests = root().join("tests");
    let ini = fs::read_to_string(tests.join("pytest.ini")).unwrap();
    let named = ini.lines().find_map(|l| l.strip_prefix("testpaths = ")).unwrap();
    let named: BTreeSet<String> = named.split_whitespace().map(str::to_owned).collect();
    let has_tests = |folder: &std::path::Path| {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.into_iter().any(|f| {
            let name = f.file_name().to_string_lossy().into_owned();
            name.starts_with("test_") && name.ends_with(".py")
        })
    };
    let folders = fs::read_dir(&tests).unwrap().flatten();
    let there: BTreeSet<String> = folders
        .filter(|f| has_tests(&f.path()))
        .map(|f| f.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, named, "tests/pytest.ini, testpaths");
}
