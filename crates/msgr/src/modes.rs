//! Which modes (crc, secure) a listener offers to whom, and where that is said: the options `ms_*_mode`.
//!
//! Invariants: a handshake takes the first mode of the peer's own order that is allowed to it, as the real one does; a change
//! holds for handshakes from then on, and no session changes its mode. Never stricter than the authentication can be: without
//! a key there is nothing to be secure with (the owner refuses to demand it).

use auth::ConMode;
use std::sync::{Arc, Mutex, PoisonError};
use types::EntityKind;

/// Modes in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    /// Allowed to clients.
    pub clients: Vec<ConMode>,
    /// Allowed to monitors, managers and OSDs; and asked for where they dial.
    pub daemons: Vec<ConMode>,
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            clients: vec![ConMode::Crc, ConMode::Secure],
            daemons: vec![ConMode::Crc, ConMode::Secure],
        }
    }
}

impl Modes {
    /// The options that hold for an entity of this kind: towards clients, and between daemons.
    pub fn options(kind: EntityKind) -> [&'static str; 2] {
        match kind {
            EntityKind::Mon => ["ms_mon_service_mode", "ms_mon_cluster_mode"],
            _ => ["ms_service_mode", "ms_cluster_mode"],
        }
    }

    /// As `option` gives them; what is not set, or is no list of modes, is the default.
    pub fn of<'a>(kind: EntityKind, option: impl Fn(&str) -> Option<&'a str>) -> Self {
        let default = match kind {
            EntityKind::Mon => vec![ConMode::Secure, ConMode::Crc],
            _ => vec![ConMode::Crc, ConMode::Secure],
        };
        let [clients, daemons] = Self::options(kind).map(|name| {
            let set = option(name).and_then(ConMode::list);
            set.unwrap_or_else(|| default.clone())
        });
        Self { clients, daemons }
    }

    fn for_peer(&self, kind: u8) -> &[ConMode] {
        match kind == EntityKind::Client as u8 {
            true => &self.clients,
            false => &self.daemons,
        }
    }
}

/// The modes of one listener, which may change while it serves.
#[derive(Debug, Default)]
pub struct ModeSwitch(Mutex<Arc<Modes>>);

impl ModeSwitch {
    pub fn new(modes: Modes) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Arc::new(modes))))
    }

    /// From the next handshake on.
    pub fn set(&self, modes: Modes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(modes);
    }

    /// Those allowed to a peer that says it is of this kind, out of `possible`. Daemons have to prove that they are.
    pub(crate) fn allowed(&self, kind: u8, possible: &[ConMode]) -> Vec<ConMode> {
        let modes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = modes.for_peer(kind).iter().copied();
        wanted.filter(|m| possible.contains(m)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_have_options_of_their_own() {
        let set = |name: &str| match name {
            "ms_service_mode" => Some("secure"),
            "ms_mon_cluster_mode" => Some("crc"),
            _ => None,
        };
        let mon = Modes::of(EntityKind::Mon, set);
        assert_eq!(mon.clients, [ConMode::Secure, ConMode::Crc]);
        assert_eq!(mon.daemons, [ConMode::Crc]);
        let osd = Modes::of(EntityKind::Osd, set);
        assert_eq!(
            (osd.clients.as_slice(), osd.daemons.len()),
            (&[ConMode::Secure][..], 2)
        );
    }

    #[test]
    fn a_switch_holds_for_what_comes_after() {
        let both = [ConMode::Secure, ConMode::Crc];
        let switch = ModeSwitch::new(Modes::default());
        let (client, osd) = (EntityKind::Client as u8, EntityKind::Osd as u8);
        assert_eq!(switch.allowed(client, &both).len(), 2);
        switch.set(Modes {
            clients: vec![ConMode::Secure],
            ..Modes::default()
        });
        assert_eq!(switch.allowed(client, &both), [ConMode::Secure]);
        assert_eq!(switch.allowed(osd, &both).len(), 2);
        assert_eq!(switch.allowed(client, &[ConMode::Crc]), []);
    }
}
