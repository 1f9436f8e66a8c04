//! Backups that are missing, failed, or failed their trial (`skep backup`; docs/operating/handbook.md).

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use cluster::backups;

pub fn backups(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let trouble = backups::trouble(ctx.state, u64::from(ctx.now.sec));
    let mut raise = |code, what: &str, detail: Vec<String>| {
        let n = detail.len();
        if n > 0 {
            found.push(warn(code, format!("{n} {what}"), n as u64, detail));
        }
    };
    raise(
        "BACKUP_STALE",
        "images have no backup as new as they should",
        trouble.stale,
    );
    raise("BACKUP_FAILED", "backups failed the last time", trouble.failed);
    raise(
        "BACKUP_TRIAL_FAILED",
        "backups failed their trial, or had none",
        trouble.trial,
    );
}
