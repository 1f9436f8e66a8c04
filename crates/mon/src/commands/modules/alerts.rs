//! `alerts`: e-mails and webhooks about health checks. Who sends them is the crate `alarms`, beside the monitor of the active manager.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use cluster::alarms::{ASKED, Receiver, Settings};
use cluster::{Change, Changes};
use types::Errno;

const MODULE: &str = "alerts";

pub const TABLE: &[Spec] = &[spec(
    ("mgr", "r"),
    "alerts send",
    "tell all receivers of alarms how the cluster is, within seconds",
    send,
)
.by_manager(MODULE)];

fn send(_: &Command, ctx: &Context<'_>) -> Outcome {
    let settings = Settings::of(ctx.state);
    if !Receiver::ALL.into_iter().any(|r| settings.has(r)) {
        let why = "nobody is to be told: set mgr/alerts/smtp_host, smtp_sender and smtp_destination, or webhook_url";
        // As of a manager that has not enabled the module.
        return Outcome::error(Errno::EOPNOTSUPP, why);
    }
    let change = Change::ConfigKeySet {
        key: ASKED.into(),
        value: u64::from(ctx.now.sec).to_string().into(),
    };
    Outcome::status("sent within some seconds; if it cannot be, a health check says why")
        .with(Changes::one(change))
}
