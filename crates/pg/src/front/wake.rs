//! What a call of the back end has set going in the front. It waits until that call is over.

use super::parked::JobId;
use crate::store::Ticket;
use types::HObject;

/// Something that can go on.
#[derive(Debug)]
pub(crate) enum Wake {
    /// A job is ready.
    Start(JobId),
    /// What a ticket of the back end's stands for has come.
    Came(Ticket),
    /// A turn on the object has ended.
    Pump(HObject),
    /// The repair that a check of the scrub asked for has ended.
    Checked(u64),
    /// What is in the store is not what the PG remembers.
    Reload,
    /// The object cannot be read here, and nobody could give it.
    Unreadable(HObject),
}
