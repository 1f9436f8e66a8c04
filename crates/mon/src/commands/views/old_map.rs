//! The OSD map of an epoch that a command names.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use denc::Decode;
use std::borrow::Cow;
use types::Errno;
use types::osdmap::OsdMap;

/// The map of the wanted epoch, or the refusal.
pub fn map_of<'a>(cmd: &Command, ctx: &'a Context<'_>) -> Result<Cow<'a, OsdMap>, Outcome> {
    let now = ctx.map();
    let Some(epoch) = cmd.int("epoch").filter(|e| *e != 0 && *e != i64::from(now.epoch)) else {
        return Ok(Cow::Borrowed(now));
    };
    let absent = || Outcome::absent(format!("there is no map for epoch {epoch}"));
    let raw = u32::try_from(epoch)
        .ok()
        .and_then(|e| ctx.state.history.full(e))
        .ok_or_else(absent)?;
    match OsdMap::from_bytes(&raw) {
        Ok(map) => Ok(Cow::Owned(map)),
        Err(e) => Err(Outcome::error(
            Errno::EIO,
            format!("the map of epoch {epoch} cannot be read: {e}"),
        )),
    }
}
