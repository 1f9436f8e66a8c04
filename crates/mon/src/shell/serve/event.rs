//! Everything that makes the monitor's loop do something, and what it does then. Nothing here waits.

use crate::policies::chores::Chores;
use crate::policies::lag::Words;
use crate::shell::ask::Ask;
use crate::shell::commits::{Asked, Outcome};
use crate::shell::monitor::MessageEnv;
use crate::shell::requests::Request;
use crate::shell::serve::{Error, MonServer, Port};
use crate::shell::turns::Kind;
use net::NetEvent;

pub(super) enum Event {
    Net(Port, NetEvent),
    State,
    Stats,
    Tick,
    Ask(Ask),
    /// What a request is about is known.
    LookedUp(Port, u64, Box<Request>),
    Committed(Option<Box<Asked<Port>>>, Outcome),
    Chores(Box<Chores>, Result<(), metastore::Error>),
    /// What the other monitors said of themselves.
    Heard(Words),
    Followed(Result<(), metastore::Error>),
    Stop,
}

impl Event {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Net(Port::Mon, _) => Kind::Mon,
            Self::Net(Port::Mgr, _) => Kind::Mgr,
            Self::State => Kind::State,
            Self::Stats => Kind::Stats,
            Self::Tick => Kind::Tick,
            Self::Ask(_) | Self::LookedUp(..) => Kind::Ask,
            Self::Committed(..) => Kind::Committed,
            Self::Chores(..) => Kind::Chores,
            Self::Heard(_) => Kind::Heard,
            Self::Followed(_) | Self::Stop => Kind::End,
        }
    }
}

impl MonServer {
    pub(super) fn apply(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Net(port, event) => self.net_event(port, event),
            Event::State => self.take_state(),
            Event::Stats => self.monitor.stats_changed(self.cluster.stats()),
            Event::Tick => self.tick(),
            Event::Committed(asked, done) => self.committed(asked, done)?,
            Event::Chores(chores, done) => {
                done?;
                self.chores = Some(chores);
                let turn = self.lag.followed(self.clock.monotonic());
                self.turn(turn);
                self.note_stall();
                self.take_state();
            }
            Event::Heard(words) => {
                let turn = self.lag.heard(self.clock.monotonic(), &words);
                self.turn(turn);
            }
            Event::Ask(question) => self.answer_question(question),
            Event::LookedUp(port, id, request) => self.decide(port, id, *request),
            Event::Followed(done) => {
                done?;
                return Err(Error::Cluster(metastore::Error::Closed));
            }
            Event::Stop => {}
        }
        Ok(())
    }

    fn answer_question(&mut self, question: Ask) {
        let random = self.random.clone();
        let env = MessageEnv {
            now: self.now(),
            random: &*random,
        };
        let (answer, record) = self.monitor.ask(&question.command, &env);
        if let Some(record) = record {
            self.records.keep(record);
        }
        self.turns.about().question = Some(question.command);
        // Who asked may have gone.
        let _ = question.reply.send(answer);
    }
}
