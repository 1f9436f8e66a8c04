//! One OSD's lease against two clocks, that of the cluster state and that of the OSD.
//!
//! A tick is one of the cluster state's clock. The OSD's own clock is bounded to lose at most one tick in any
//! `TTL` of them, wherever it likes (a faster one only gives up sooner). Renewals and their answers travel any number of
//! ticks; a paused OSD is one whose messages do not move. The OSD believes in its lease until `TTL` less a margin after
//! the *sending* of the last renewal that was granted, by its own clock.
//!
//! The property: nobody is marked down while it believes; that is all that `replication` uses. Not here: a clock that stands
//! still while its machine is suspended, which no margin covers.

use crate::search::Model;

/// Ticks from a renewal's execution to the lease's end.
const TTL: u8 = 4;
/// Ticks between two losses of the OSD's clock: no window of `TTL` ticks holds two.
const LOSS_EVERY: u8 = TTL + 1;

/// The rules; the default is the contract.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Ticks that the OSD gives up early.
    pub margin: u8,
    /// Broken: it counts from the answer's arrival.
    pub from_answer: bool,
    /// Broken: a lease that ended is created again by its renewal, without a boot.
    pub renew_ended: bool,
    /// Broken: an OSD that is only silent is marked down.
    pub down_before_end: bool,
    /// Broken: the transaction that marks down rests on what was seen before it.
    pub down_unfenced: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            margin: 1,
            from_answer: false,
            renew_ended: false,
            down_before_end: false,
            down_unfenced: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Renewal {
    None,
    /// On its way to the cluster state, sent so many of the OSD's ticks ago.
    Out(u8),
    /// Granted, the answer on its way back.
    Back(u8),
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Ticks until the key goes; 0 when it is gone.
    key: u8,
    /// The OSD's own ticks until it stops believing.
    belief: u8,
    renewal: Renewal,
    /// A boot's request, the same way; it is a renewal that may create the key.
    boot: Renewal,
    /// Ticks since the OSD's clock lost one.
    since_loss: u8,
    down: bool,
    /// Somebody saw the key gone, and its transaction is on its way.
    accused: bool,
    /// Marked down while it believed.
    caught: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Tick { lost: bool },
    SendRenewal,
    Renew,
    Answer,
    SendBoot,
    Boot,
    BootAnswer,
    Accuse,
    MarkDown,
}

impl Rules {
    fn granted(&self, age: u8) -> u8 {
        let age = if self.from_answer { 0 } else { age };
        (TTL - self.margin).saturating_sub(age)
    }

    fn tick(&self, s: &State, lost: bool) -> State {
        let mut n = s.clone();
        n.key = s.key.saturating_sub(1);
        n.since_loss = if lost {
            1
        } else {
            (s.since_loss + 1).min(LOSS_EVERY)
        };
        if !lost {
            n.belief = s.belief.saturating_sub(1);
            // Older than the TTL is all the same: it grants nothing.
            let older = |r| match r {
                Renewal::Out(age) => Renewal::Out((age + 1).min(TTL)),
                Renewal::Back(age) => Renewal::Back((age + 1).min(TTL)),
                other => other,
            };
            n.renewal = older(s.renewal);
            n.boot = older(s.boot);
        }
        n
    }

    fn renewals(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let mut n = s.clone();
        match s.renewal {
            Renewal::None if s.boot == Renewal::None => {
                n.renewal = Renewal::Out(0);
                out.push((Action::SendRenewal, n));
            }
            Renewal::Out(age) => {
                n.renewal = Renewal::Refused;
                if s.key > 0 || self.renew_ended {
                    n.key = TTL;
                    n.renewal = Renewal::Back(age);
                }
                out.push((Action::Renew, n));
            }
            Renewal::Back(age) => {
                n.renewal = Renewal::None;
                n.belief = s.belief.max(self.granted(age));
                out.push((Action::Answer, n));
            }
            // Only a boot helps.
            Renewal::Refused | Renewal::None => {}
        }
    }

    fn boots(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let mut n = s.clone();
        match s.boot {
            Renewal::None if s.renewal == Renewal::Refused => {
                n.renewal = Renewal::None;
                n.boot = Renewal::Out(0);
                n.belief = 0;
                out.push((Action::SendBoot, n));
            }
            Renewal::Out(age) => {
                n.key = TTL;
                n.down = false;
                n.boot = Renewal::Back(age);
                out.push((Action::Boot, n));
            }
            Renewal::Back(age) => {
                n.boot = Renewal::None;
                n.belief = self.granted(age);
                out.push((Action::BootAnswer, n));
            }
            Renewal::None | Renewal::Refused => {}
        }
    }

    fn mark_downs(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let mut n = s.clone();
        if !s.accused && !s.down && (s.key == 0 || self.down_before_end) {
            n.accused = true;
            out.push((Action::Accuse, n));
        } else if s.accused {
            n.accused = false;
            let stands = s.key == 0 || self.down_unfenced || self.down_before_end;
            n.down |= stands;
            n.caught |= stands && s.belief > 0;
            out.push((Action::MarkDown, n));
        }
    }
}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            key: TTL,
            belief: self.granted(0),
            renewal: Renewal::None,
            boot: Renewal::None,
            since_loss: LOSS_EVERY,
            down: false,
            accused: false,
            caught: false,
        }
    }

    fn next(&self, s: &State, out: &mut Vec<(Action, State)>) {
        out.push((Action::Tick { lost: false }, self.tick(s, false)));
        if s.since_loss >= LOSS_EVERY {
            out.push((Action::Tick { lost: true }, self.tick(s, true)));
        }
        self.renewals(s, out);
        self.boots(s, out);
        self.mark_downs(s, out);
    }

    fn check(&self, s: &State) -> Result<(), &'static str> {
        match s.caught || (s.down && s.belief > 0) {
            true => Err("marked down while it believes in its lease"),
            false => Ok(()),
        }
    }

    /// It believes, and rightly.
    fn goal(&self, s: &State) -> bool {
        s.belief > 0 && !s.down
    }

    fn is_fault(&self, action: Action) -> bool {
        action == Action::Tick { lost: true }
    }
}
