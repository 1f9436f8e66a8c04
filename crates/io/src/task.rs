//! Threads with a single-threaded runtime each: how a role (a monitor, an OSD) owns its state without locks.
//!
//! A role is one thread; everything it spawns with `spawn_local` stays on it. Timers come from the same
//! runtime. Blocking work inside a role stalls that role alone.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

pub use tokio::task::spawn_local;
pub use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

/// Runs `role()` to its end on a new thread named `name`, inside a current-thread runtime.
#[allow(clippy::disallowed_methods)]
pub fn spawn_role<R, F, T>(name: &str, role: R) -> io::Result<JoinHandle<T>>
where
    R: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new().name(name.to_string()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(async move { role().await }))
    })
}

/// Runs `main()` on the calling thread the same way.
pub fn block_on<F: Future>(main: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    Ok(runtime.block_on(local.run_until(main)))
}

/// Completes when the process is asked to end (SIGTERM, SIGINT); says which.
pub async fn termination() -> io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => Ok("SIGTERM"),
        _ = int.recv() => Ok("SIGINT"),
    }
}
