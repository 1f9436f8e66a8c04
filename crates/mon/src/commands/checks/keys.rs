//! Keys whose time is over, or soon will be.

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use auth::EntityAuth;
use types::AuthName;

/// So long before.
const SOON_SEC: u32 = 7 * 86_400;

pub fn expiring(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let soon = ctx.now.sec.saturating_add(SOON_SEC);
    let said = |(name, e): (&AuthName, &EntityAuth)| {
        let at = e.expiry?.at;
        let how = if e.expired(ctx.now).is_some() {
            "expired"
        } else {
            "expires"
        };
        (at.sec <= soon).then(|| format!("{name} {how} at {at}"))
    };
    let detail: Vec<String> = ctx.state.auth.entities.iter().filter_map(said).collect();
    if !detail.is_empty() {
        let n = detail.len();
        let text = format!("{n} user(s) whose keys expire soon, or have expired");
        found.push(warn("AUTH_KEY_EXPIRES", text, n as u64, detail));
    }
}
