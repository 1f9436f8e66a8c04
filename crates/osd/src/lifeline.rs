//! The lifeline to one peer: a second connection beside the link, on which nothing is said, and whose end tells whether the peer's
//! process is gone.
//!
//! A FIN on it proves that. The peer closes its end when the process ends, or when its OSD has stopped serving, and never
//! before: whatever else ends it is a reset ([`net::Lifelines`]). The kernel makes a FIN of a SIGKILL because nothing is ever
//! left unread there. The handshake has shown which process it is: the address that was dialled has its nonce, and both
//! sides compared it. And nobody stands between who could end it by himself: the peer saw the connection come from where it
//! begins ([`net::Session::direct`]).
//!
//! A reset, a timeout or silence prove nothing: firewalls, cables and kernels make them between processes that live. Then the
//! peer's lease decides, as it does where there is no lifeline.
//!
//! Invariants: what is heard of an earlier connection is dropped; an end counts only after the whole handshake. Dialled only while
//! the link is open, again [`AGAIN`] after it broke. Not here: what follows (`membership`).

use crate::peer_auth::PeerAuth;
use net::{ClientError, DialEvent, Dialled};
use pg::broken::{self, Rule};
use std::time::Duration;
use types::OsdId;

/// A lifeline that broke is dialled again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// One that broke on the other side only is found out so.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Lifeline {
    run: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// The peer is not known to keep any, or not in a way that proves something.
    #[default]
    None,
    /// To be dialled at this time.
    Due(Duration),
    Dialling {
        dialled: Dialled<PeerAuth>,
    },
    Held {
        _dialled: Dialled<PeerAuth>,
    },
    /// The peer's process is gone.
    Ended,
}

impl Lifeline {
    /// The link is open, and the peer keeps lifelines.
    pub fn want(&mut self, now: Duration) {
        if matches!(self.state, State::None) {
            self.state = State::Due(now);
        }
    }

    /// When it is to be dialled, if it is.
    pub fn due(&self) -> Option<Duration> {
        match self.state {
            State::Due(at) => Some(at),
            _ => None,
        }
    }

    pub fn dialled(&mut self, run: u64, dialled: Dialled<PeerAuth>) {
        (self.run, self.state) = (run, State::Dialling { dialled });
    }

    pub fn not_dialled(&mut self, now: Duration) {
        self.state = State::Due(now + AGAIN);
    }

    pub fn is_run(&self, run: u64) -> bool {
        self.run == run
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// True if the process of `osd` is gone, known from now on.
    pub fn on_event(&mut self, osd: OsdId, event: DialEvent, now: Duration) -> bool {
        let state = std::mem::take(&mut self.state);
        self.state = match (state, event) {
            (State::Dialling { .. }, DialEvent::Ready(session)) if !session.direct => {
                tracing::warn!(
                    "osd.{osd} is reached by a proxy, or by translated addresses: that it was killed is known when its lease has ended"
                );
                State::None
            }
            (State::Dialling { dialled }, DialEvent::Ready(_)) => State::Held { _dialled: dialled },
            (State::Held { .. }, DialEvent::Ended(why)) if proves(&why) => State::Ended,
            (State::Ended, _) => return false,
            (_, DialEvent::Ended(why)) => {
                tracing::debug!("the lifeline of osd.{osd} broke: {why}");
                State::Due(now + AGAIN)
            }
            (_, event) => {
                tracing::warn!("osd.{osd} speaks on a lifeline: {event:?}");
                State::Due(now + AGAIN)
            }
        };
        self.has_ended()
    }
}

/// A FIN, and nothing else.
fn proves(why: &ClientError) -> bool {
    matches!(why, ClientError::Closed) || broken::is(Rule::CleanEnd)
}
