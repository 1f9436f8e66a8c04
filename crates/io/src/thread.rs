//! Helper threads: the only place that starts one.

use crate::group::Group;
use std::thread::JoinHandle;

/// Starts a named thread, of the same group as the caller's; the name shows in the host's process list (15 bytes of it).
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    spawn_in(Group::current(), name, body)
}

/// Starts a named thread of this group.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn_in<T: Send + 'static>(
    group: Option<Group>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let member = group.map(|g| g.member());
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Some(member) = &member {
            member.enter();
        }
        body()
    })
}

/// How many processors this process may use, as far as the system says; else 1.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
