//! What an authenticated client instance is remembered by where its name is too long to be kept: in each entry of a log.
//!
//! Invariant: the same for one entity and one global id, over reconnects, renewed tickets, restarts and hosts; stored, so it
//! never changes. Another entity does not have it by saying the same global id.

use aws_lc_rs::digest::{SHA256, digest};
use types::AuthName;

/// A digest of entity and global id; never 0.
pub fn instance(name: &AuthName, global_id: u64) -> u64 {
    let sum = digest(&SHA256, format!("{name}\0{global_id}").as_bytes());
    let first = sum.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityKind;

    #[test]
    fn an_instance_is_an_entity_and_its_global_id() {
        let of = |id: &str, gid| instance(&AuthName::new(EntityKind::Client, id), gid);
        // It stands in logs: another value would make their entries strangers.
        assert_eq!(of("admin", 4107), 0x3ed27f89d581f14d);
        assert_ne!(of("admin", 4107), of("admin", 4108));
        assert_ne!(of("admin", 4107), of("mallory", 4107));
        assert_ne!(
            of("admin", 4107),
            instance(&AuthName::new(EntityKind::Osd, "admin"), 4107)
        );
    }
}
