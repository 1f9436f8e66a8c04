//! Questions of the monitor's own process: commands that only read, without a connection. The admin socket asks them,
//! so `skep status` and `skep doctor` work when nobody can log in.
//!
//! Bound: [`ASKS_MAX`] questions wait.

use crate::commands;
use crate::commands::command::Outcome;
use crate::commands::context::Context;
use crate::shell::audit::Record;
use auth::Access;
use tokio::sync::{mpsc, oneshot};
use types::Errno;

const ASKS_MAX: usize = 16;

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 0 or a negative errno.
    pub code: i32,
    pub status: String,
    pub data: bytes::Bytes,
}

impl From<Outcome> for Answer {
    fn from(o: Outcome) -> Self {
        Self {
            code: o.code,
            status: o.status,
            data: o.data,
        }
    }
}

/// One question: the JSON text of a command.
#[derive(Debug)]
pub struct Ask {
    pub command: String,
    pub reply: oneshot::Sender<Answer>,
}

#[derive(Debug, Clone)]
pub struct Asker(mpsc::Sender<Ask>);

/// The monitor's side of an [`Asker`].
#[derive(Debug)]
pub struct Asks(mpsc::Receiver<Ask>);

pub fn channel() -> (Asker, Asks) {
    let (sender, receiver) = mpsc::channel(ASKS_MAX);
    (Asker(sender), Asks(receiver))
}

impl Asker {
    /// None: the monitor does not run.
    pub async fn ask(&self, command: String) -> Option<Answer> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Ask { command, reply }).await.ok()?;
        answer.await.ok()
    }
}

/// The next question; waits for ever where nobody may ask, or nobody can ask any more.
pub(crate) async fn next(asks: &mut Option<Asks>) -> Ask {
    if let Some(open) = asks
        && let Some(ask) = open.0.recv().await
    {
        return ask;
    }
    *asks = None;
    std::future::pending().await
}

/// Runs a command that only reads; with a record of it where it shows a secret or was refused.
pub(crate) fn run(command: &str, ctx: &Context<'_>) -> (Answer, Option<Record>) {
    let cmd = match commands::parse(&[command.to_string()], bytes::Bytes::new()) {
        Ok(cmd) => cmd,
        Err(refusal) => return (refusal.into(), None),
    };
    let answer: Answer = match commands::need(&cmd) {
        Some(need) if need.access != Access::R => {
            Outcome::error(Errno::EACCES, "only commands that read are taken here").into()
        }
        _ => commands::run(&cmd, ctx).into(),
    };
    let record = commands::is_audited(&cmd)
        .then(|| Record::of_admin_socket(commands::without_secrets(&cmd), answer.code, ctx.now));
    (answer, record)
}
