//! Helper threads: the only place that starts one.

use std::thread::JoinHandle;

/// Starts a named thread; the name shows in the host's process list (15 bytes of it).
#[allow(clippy::disallowed_methods)]
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}
