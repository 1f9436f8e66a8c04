//! The shell's part when the monitor is behind: has the others asked, and admits clients or refuses them as the
//! monitor's stance changes (`lag`).

use crate::policies::lag::{HESITATION, Stance, Turn, Words};
use crate::shell::others::Others;
use crate::shell::serve::{MonServer, Port};
use std::time::Duration;

/// The other monitors are being asked.
pub(super) type Asking = io::task::TaskHandle<(Box<Others>, Words)>;

/// The questions' end.
pub(super) async fn heard(asking: &mut Option<Asking>) -> Option<(Box<Others>, Words)> {
    let Some(task) = asking else {
        return std::future::pending().await;
    };
    let done = task.await.ok();
    *asking = None;
    done
}

impl MonServer {
    /// Asks the other monitors how they are, if this one is behind.
    pub(super) fn look_around(&mut self) {
        let now = self.clock.monotonic();
        self.monitor.info.behind = self.lag.behind(now);
        if self.others.is_none() || !self.lag.asks(now) {
            return;
        }
        let Some(mut others) = self.others.take() else {
            return;
        };
        let state = self.monitor.state().clone();
        self.asking = Some(io::task::spawn_local(async move {
            let words = others.ask(&state).await;
            (others, words)
        }));
    }

    /// Clients are served here, or sent to others, from now on.
    pub(super) fn turn(&mut self, turn: Option<Turn>) {
        self.monitor.info.behind = self.lag.behind(self.clock.monotonic());
        let Some(turn) = turn else {
            return;
        };
        let behind = self.monitor.info.behind.as_secs();
        match &turn.stance {
            Stance::Serving if behind == 0 => {
                tracing::warn!("clients are served as ever: the cluster state answers")
            }
            Stance::Serving => {
                tracing::warn!("clients are served: no other monitor follows the cluster state")
            }
            Stance::Hesitating => tracing::warn!(
                "the cluster state has not answered for {behind} s, and not all other monitors can be asked: clients are \
                 served after a pause, so that they try the others first"
            ),
            Stance::Away(to) => tracing::error!(
                "the cluster state has not answered for {behind} s, and mon.{} follows it: clients are sent there",
                to.join(", mon.")
            ),
        }
        self.admission.shut(matches!(turn.stance, Stance::Away(_)));
        let pause = match turn.stance {
            Stance::Hesitating => HESITATION,
            _ => Duration::ZERO,
        };
        self.mon.connections.hesitate(pause);
        if turn.dismiss {
            for id in self.monitor.clients() {
                self.close(Port::Mon, id);
            }
        }
        self.monitor.info.stance = turn.stance;
    }
}
