//! What systemd is told of `skep up`: what it waits for, that it serves, that it lives. Nothing is said where nobody asked
//! (`NOTIFY_SOCKET`, `WATCHDOG_USEC`: sd_notify(3)).

use sd_notify::NotifyState;
use std::sync::mpsc;
use std::time::Duration;

/// As long as a word waits for a service manager that takes none.
const WITHIN: Duration = Duration::from_secs(2);

/// What the start waits for.
pub fn starting(what: &str) {
    say(None, what);
}

/// Clients are served. From here on the service lives as long as `lives` says so.
pub fn ready(status: &str) {
    say(Some(NotifyState::Ready), status);
}

pub fn stopping(why: &str) {
    say(Some(NotifyState::Stopping), why);
}

/// In order, where it is heard in time.
fn say(state: Option<NotifyState<'static>>, status: &str) {
    let status = status.to_string();
    let (done, told) = mpsc::channel();
    let begun = io::thread::spawn("service", move || {
        let all: Vec<_> = state.into_iter().chain([NotifyState::Status(&status)]).collect();
        tell(&all);
        // Who asked may not wait any more.
        let _ = done.send(());
    });
    if begun.is_ok() {
        let _ = told.recv_timeout(WITHIN);
    }
}

/// Says at twice the pace that is asked for that the thread which looks after all roles gets round. A task of that thread; each
/// word of it is said by another one, since a service manager that takes none shall not hold up the store.
pub fn lives() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let pause = (limit / 2).max(Duration::from_millis(100));
    drop(io::task::spawn_local(async move {
        loop {
            let said = io::task::aside("service", || tell(&[NotifyState::Watchdog])).await;
            if let Err(e) = said {
                tracing::warn!("the service manager's watchdog is not told that we live: {e}");
            }
            io::task::sleep(pause).await;
        }
    }));
}

fn tell(what: &[NotifyState<'_>]) {
    // Who is not there cannot be told.
    if let Err(e) = sd_notify::notify(what) {
        tracing::debug!("the service manager was not told: {e}");
    }
}
