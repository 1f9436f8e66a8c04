//! One connection's handshake: who we are, and what the server's answer adds to that.

use crate::conf::Conf;
use crate::core::mon::Credentials;
use auth::{AuthError, AuthMethod, ClientAuth, ClientDone, ConMode, Context, Entropy};
use bytes::Bytes;
use msgr::ClientConfig;
use net::DialOptions;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{EntityAddr, EntityKind};

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A peer whose machine is gone is noticed after so long.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// A whole object, and something beside it.
const ANSWER_MAX: usize = 132 << 20;
/// What a connection may hold besides operations' bytes.
const OUTPUT_EXTRA: usize = 16 << 20;

/// The credentials of one handshake. What it adds to them goes to `got`.
pub struct Handshake {
    own: Credentials,
    got: Rc<RefCell<Credentials>>,
}

impl Handshake {
    pub fn new(own: Credentials) -> (Self, Rc<RefCell<Credentials>>) {
        let got = Rc::new(RefCell::new(own.clone()));
        (
            Self {
                own,
                got: got.clone(),
            },
            got,
        )
    }

    fn inner(&mut self) -> &mut dyn ClientAuth {
        match &mut self.own {
            Credentials::None(c) => c,
            Credentials::Cephx(c) => c,
        }
    }
}

impl ClientAuth for Handshake {
    fn method(&self) -> AuthMethod {
        match &self.own {
            Credentials::None(_) => AuthMethod::None,
            Credentials::Cephx(_) => AuthMethod::Cephx,
        }
    }

    fn request(&mut self, peer: EntityKind, cx: &Context) -> Result<Bytes, AuthError> {
        self.inner().request(peer, cx)
    }

    fn more(&mut self, payload: &Bytes, cx: &Context) -> Result<Bytes, AuthError> {
        self.inner().more(payload, cx)
    }

    fn done(&mut self, global_id: u64, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError> {
        let done = self.inner().done(global_id, mode, payload)?;
        *self.got.borrow_mut() = self.own.clone();
        Ok(done)
    }
}

/// `nonce`: part of our identity, the same for all connections of the client.
pub fn config(
    conf: &Conf,
    peer: EntityKind,
    addr: EntityAddr,
    nonce: u32,
    global_id: u64,
    entropy: Arc<dyn Entropy>,
) -> ClientConfig {
    let mut config = ClientConfig::new(peer, addr, nonce, entropy);
    config.modes = match peer {
        EntityKind::Mon => conf.mon_modes.clone(),
        _ => conf.osd_modes.clone(),
    };
    config.limits.data_max = ANSWER_MAX;
    config.gid = match global_id {
        0 => -1,
        id => id as i64,
    };
    config
}

pub fn options(conf: &Conf) -> DialOptions {
    DialOptions {
        handshake_timeout: HANDSHAKE_MAX,
        // All that may be under way at once, and one that is larger than that.
        output_max: conf.limits.bytes.max(crate::core::op::DATA_MAX) * 2 + OUTPUT_EXTRA,
        lifeline: false,
        keep_alive: Some(KEEP_ALIVE),
        meter: net::Meter::default(),
        lanes: None,
    }
}
