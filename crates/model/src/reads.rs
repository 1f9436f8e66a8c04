//! Reads of one member of `in_sync` by grants of its primary, against clocks, cuts, a removal and a second primary.
//!
//! Vocabulary: as in docs/internals/replication.md. OSD *one* leads in the first interval, *two* in the second; both are in
//! `in_sync` as far as it matters here, *member* is in it until its removal is committed. A tick is one of the primaries'
//! clocks; the member's own loses at most one in any `GRANT` of them. Questions and answers travel any number of ticks.
//!
//! The property: while the member believes in its grant it has every acknowledged write. That a write shows itself only when
//! all have it is not here (the member compares versions, no clock is in it); nor is what it hears of the cluster state,
//! which may be as old as it likes. Taken from the model `lease`: the second interval begins when the lease of one has ended.

use crate::search::Model;

/// Ticks from the sending of the question to the grant's end.
const GRANT: u8 = 4;
/// Ticks between two losses of the member's clock: no window of `GRANT` ticks holds two.
const LOSS_EVERY: u8 = GRANT + 1;
const WRITES_MAX: u8 = 2;

/// The rules; the default is the contract.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Ticks for which a primary takes a grant to last longer.
    pub margin: u8,
    /// Broken: the member counts from the answer's arrival.
    pub from_answer: bool,
    /// Broken: a removal is proposed while a grant runs.
    pub remove_at_once: bool,
    /// Broken: a new primary proposes the removal of a member that it has not heard, without waiting.
    pub remove_unheard: bool,
    /// Broken: after it has proposed the removal the primary grants again.
    pub grant_while_proposed: bool,
    /// Broken: the primary grants without a live lease.
    pub grant_without_lease: bool,
    /// Broken: a question of a later interval does not end the member's grant.
    pub keep_over_query: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            margin: 1,
            from_answer: false,
            remove_at_once: false,
            remove_unheard: false,
            grant_while_proposed: false,
            grant_without_lease: false,
            keep_over_query: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    None,
    /// On its way, sent so many of the member's ticks ago.
    Out(u8),
    /// Granted, the answer on its way back.
    Back(u8),
}

/// What a primary has in mind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Primary {
    connected: bool,
    /// It takes the member to be in `in_sync`.
    counts: bool,
    /// Ticks for which the member may hold a grant, as far as it knows.
    granted: u8,
    /// It proposed the removal, and has not seen the outcome.
    proposed: bool,
    /// That proposal was not executed yet.
    on_its_way: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    one: Primary,
    /// The lease of one.
    leased: bool,
    two: Primary,
    /// Two knows that it leads.
    second: bool,
    /// The committed interval is the second; the member is in the committed `in_sync`.
    moved: bool,
    inside: bool,
    /// The member's clock, grant and question; the interval that it knows is the second.
    since_loss: u8,
    belief: u8,
    question: Question,
    knows: bool,
    /// Writes made, those that the member has, those acknowledged.
    made: u8,
    has: u8,
    acknowledged: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Tick { lost: bool },
    Ask,
    Grant,
    Answer,
    Write,
    Apply,
    Acknowledge,
    Propose,
    Remove,
    HearOfRemoval,
    Cut,
    Connect,
    LeaseEnds,
    Move,
    Lead,
    Query,
}

impl State {
    /// Who leads as far as it knows itself.
    fn leader(&self) -> &Primary {
        if self.second { &self.two } else { &self.one }
    }

    fn leader_mut(&mut self) -> &mut Primary {
        if self.second { &mut self.two } else { &mut self.one }
    }

    /// The member takes what the leader sends.
    fn reaches(&self) -> bool {
        self.leader().connected && self.knows == self.second
    }
}

impl Rules {
    fn tick(&self, s: &State, lost: bool) -> State {
        let mut n = s.clone();
        n.one.granted = s.one.granted.saturating_sub(1);
        n.two.granted = s.two.granted.saturating_sub(1);
        n.since_loss = if lost {
            1
        } else {
            (s.since_loss + 1).min(LOSS_EVERY)
        };
        if !lost {
            n.belief = s.belief.saturating_sub(1);
            n.question = match s.question {
                Question::Out(age) => Question::Out((age + 1).min(GRANT)),
                Question::Back(age) => Question::Back((age + 1).min(GRANT)),
                Question::None => Question::None,
            };
        }
        n
    }

    /// The member's questions go to one alone: what two grants is the same again.
    fn grants(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let mut n = s.clone();
        match s.question {
            Question::None if s.one.connected && !s.knows => {
                n.question = Question::Out(0);
                out.push((Action::Ask, n));
            }
            Question::Out(age) => {
                let may = s.one.counts
                    && (s.leased || self.grant_without_lease)
                    && (!s.one.proposed || self.grant_while_proposed);
                n.question = match may {
                    true => Question::Back(age),
                    false => Question::None,
                };
                if may {
                    n.one.granted = GRANT + self.margin;
                }
                out.push((Action::Grant, n));
            }
            Question::Back(age) => {
                n.question = Question::None;
                // An answer of an interval that is over is none.
                if !s.knows {
                    let age = if self.from_answer { 0 } else { age };
                    n.belief = s.belief.max(GRANT - age);
                }
                out.push((Action::Answer, n));
            }
            Question::None => {}
        }
    }

    fn writes(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let leads = s.second || !s.moved;
        if leads && s.made < WRITES_MAX {
            let mut n = s.clone();
            n.made += 1;
            out.push((Action::Write, n));
        }
        if s.reaches() && s.has < s.made {
            let mut n = s.clone();
            n.has = s.made;
            out.push((Action::Apply, n));
        }
        // Two has everything of one: it is in `in_sync`, and refuses it once it leads.
        let durable = !s.leader().counts || s.has == s.made;
        if s.acknowledged < s.made && durable {
            let mut n = s.clone();
            n.acknowledged = s.made;
            out.push((Action::Acknowledge, n));
        }
    }

    fn removal(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let leader = s.leader();
        let hurries = match s.second {
            true => self.remove_unheard,
            false => self.remove_at_once,
        };
        if leader.counts && !leader.proposed && (leader.granted == 0 || hurries) {
            let mut n = s.clone();
            n.leader_mut().proposed = true;
            n.leader_mut().on_its_way = true;
            out.push((Action::Propose, n));
        }
        // The commit compares the interval.
        if s.one.on_its_way {
            let mut n = s.clone();
            n.inside &= s.moved;
            n.one.on_its_way = false;
            out.push((Action::Remove, n));
        }
        if s.two.on_its_way {
            let mut n = s.clone();
            n.inside = false;
            n.two.on_its_way = false;
            out.push((Action::Remove, n));
        }
        if leader.counts && !s.inside {
            let mut n = s.clone();
            n.leader_mut().counts = false;
            n.leader_mut().proposed = false;
            out.push((Action::HearOfRemoval, n));
        }
    }

    fn environment(&self, s: &State, out: &mut Vec<(Action, State)>) {
        let mut n = s.clone();
        if s.leader().connected {
            // What is on its way may be read yet, or not.
            n.leader_mut().connected = false;
            out.push((Action::Cut, n.clone()));
            n.question = Question::None;
            out.push((Action::Cut, n));
        } else {
            n.leader_mut().connected = true;
            out.push((Action::Connect, n));
        }
        let mut n = s.clone();
        if s.leased {
            n.leased = false;
            out.push((Action::LeaseEnds, n));
        } else if !s.moved {
            n.moved = true;
            out.push((Action::Move, n));
        } else if !s.second {
            n.second = true;
            n.two.counts = s.inside;
            n.two.granted = GRANT + self.margin;
            out.push((Action::Lead, n));
        } else if s.two.connected && !s.knows {
            n.knows = true;
            n.two.granted = 0;
            if !self.keep_over_query {
                n.belief = 0;
            }
            out.push((Action::Query, n));
        }
    }
}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            one: Primary {
                connected: true,
                counts: true,
                ..Primary::default()
            },
            leased: true,
            two: Primary::default(),
            second: false,
            moved: false,
            inside: true,
            since_loss: LOSS_EVERY,
            belief: 0,
            question: Question::None,
            knows: false,
            made: 0,
            has: 0,
            acknowledged: 0,
        }
    }

    fn next(&self, s: &State, out: &mut Vec<(Action, State)>) {
        out.push((Action::Tick { lost: false }, self.tick(s, false)));
        if s.since_loss >= LOSS_EVERY {
            out.push((Action::Tick { lost: true }, self.tick(s, true)));
        }
        self.grants(s, out);
        self.writes(s, out);
        self.removal(s, out);
        self.environment(s, out);
    }

    fn check(&self, s: &State) -> Result<(), &'static str> {
        match s.belief > 0 && s.has < s.acknowledged {
            true => Err("a member reads without an acknowledged write"),
            false => Ok(()),
        }
    }

    /// Everything is acknowledged.
    fn goal(&self, s: &State) -> bool {
        s.acknowledged == s.made
    }

    fn is_fault(&self, action: Action) -> bool {
        matches!(
            action,
            Action::Tick { lost: true } | Action::Cut | Action::LeaseEnds
        )
    }
}
