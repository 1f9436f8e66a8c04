//! The packages as `cargo metadata` tells of them.

use serde_json::Value;
use std::process::Command;

/// `more`: what else cargo is told, such as `--no-deps` for the workspace's own packages alone.
pub fn packages(more: &[&str]) -> Vec<Value> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(more)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}
