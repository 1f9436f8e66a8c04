//! Alarms that did not reach whom they are for (docs/operating/handbook.md).

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use cluster::alarms::{Receiver, Settings, book};

pub fn alarms(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let settings = Settings::of(ctx.state);
    let mut raise = |receiver, code, summary: &str| {
        let error = book(ctx.state, receiver).and_then(|b| b.error);
        if let Some(why) = error.filter(|_| settings.has(receiver)) {
            found.push(warn(code, summary.into(), 1, vec![why]));
        }
    };
    raise(Receiver::Mail, "ALERTS_SMTP_ERROR", "unable to send alert email");
    raise(
        Receiver::Webhook,
        "ALERTS_WEBHOOK_ERROR",
        "unable to tell the webhook of alarms",
    );
}
