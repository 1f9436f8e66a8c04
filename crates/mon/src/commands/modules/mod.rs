//! What modules of Ceph's manager answer, where there is more to it than a word.

pub mod alerts;
pub mod balancer;
pub mod crash;
pub mod device;
pub mod osd_perf_query;
pub mod perf;
pub mod progress;
pub mod schedule;
pub mod tasks;
pub mod unserved;

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::format;
use serde_json::Value;
use types::Errno;

/// The module of Ceph's manager behind all commands that begin with `rbd`.
pub const RBD_SUPPORT: &str = "rbd_support";

/// Python modules print pretty JSON whatever was asked for.
fn pretty(v: &Value) -> Outcome {
    Outcome::ok(format::pretty(v))
}

/// The same on one line.
fn spaced(v: &Value) -> Outcome {
    Outcome::ok(format::spaced(v) + "\n")
}

/// The error with the words of the real one's RBD binding.
fn refused(errno: Errno, what: &str, why: &str) -> Outcome {
    Outcome::error(errno, format!("[errno {}] {what} ({why})", -errno.code()))
}

/// What stands before an image, or is a level.
struct Place<'a> {
    pool: &'a str,
    namespace: &'a str,
}

/// Of an image that names none.
const DEFAULT_POOL: &str = "rbd";

/// `IMAGE`, or as [`image_place`] has it.
fn image_or_its_name(spec: &str) -> Option<(Place<'_>, &str)> {
    let (pool, namespace) = (DEFAULT_POOL, "");
    match spec.contains('/') || spec.is_empty() {
        true => image_place(spec),
        false => Some((Place { pool, namespace }, spec)),
    }
}

/// `POOL/IMAGE`, `POOL/NAMESPACE/IMAGE`.
fn image_place(spec: &str) -> Option<(Place<'_>, &str)> {
    let parts: Vec<&str> = spec.split('/').collect();
    match parts[..] {
        [pool, image] if !pool.is_empty() && !image.is_empty() => {
            let namespace = "";
            Some((Place { pool, namespace }, image))
        }
        [pool, namespace, image] if !pool.is_empty() && !image.is_empty() => {
            Some((Place { pool, namespace }, image))
        }
        _ => None,
    }
}

/// Pool and namespace that an argument `[POOL[/NAMESPACE]/]IMAGE`, or a level `POOL[/NAMESPACE]/[IMAGE]`, is about; nothing
/// where the command has no such argument, and a place that no constraint means where it is not understood.
pub fn place_of(cmd: &Command) -> Vec<(String, String)> {
    let given = |names: [&str; 2]| names.iter().find_map(|name| cmd.opt_text(name));
    let image = given(["image_spec", "image_id_spec"]).map(|spec| spec.split('/').collect::<Vec<_>>());
    let level = given(["level_spec", "pool_spec"]).map(|spec| spec.split('/').collect::<Vec<_>>());
    let (pool, namespace) = match (image.as_deref(), level.as_deref()) {
        (None, None) => return Vec::new(),
        (Some([_]), None) => (DEFAULT_POOL, ""),
        (Some([pool, _]), None) | (None, Some([pool] | [pool, ""])) => (*pool, ""),
        (Some([pool, namespace, _]), None) | (None, Some([pool, namespace, _])) => (*pool, *namespace),
        // `POOL/X`: a namespace, or an image of the default one. Who may only one of them says it in full.
        (None, Some([pool, _])) => (*pool, "/"),
        _ => ("/", "/"),
    };
    [("pool", pool), ("namespace", namespace)]
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into()
}

/// Pools by their id, as JSON keys name them.
fn pool_name(ctx: &Context<'_>, pool: i64) -> String {
    ctx.map().pool_name(pool).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_no_pool_is_in_rbd() {
        let of = |spec| image_or_its_name(spec).map(|(p, image)| (p.pool, p.namespace, image));
        assert_eq!(of("i"), Some(("rbd", "", "i")));
        assert_eq!(of("p/i"), Some(("p", "", "i")));
        assert_eq!(of("p/n/i"), Some(("p", "n", "i")));
        for wrong in ["", "/", "p/", "/i", "p/n/", "a/b/c/d"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        // A level of that form is a pool.
        assert!(image_place("i").is_none());
    }
}
