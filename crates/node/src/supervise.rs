//! OSDs under supervision: each on its thread; one that fails is started again, later and later.
//!
//! An OSD stops itself when a flush fails or its store is damaged. Started again it goes on from its log, as
//! after a power cut; what it had not acknowledged is sent again by the clients.

use io::task;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::EntityAddr;

/// First wait before a restart, doubled for each failure in a row up to the longest: what made it fail may be over, and the
/// cluster waits for its copies.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const RESTART_AFTER_MAX: Duration = Duration::from_secs(10);
/// An OSD that ran this long has recovered: its next failure counts as the first.
const STEADY: Duration = Duration::from_secs(60);

/// Makes the configuration of one run; asked again for each restart.
pub type MakeConfig = Arc<dyn Fn() -> osd::Config + Send + Sync>;

/// How the first start of an OSD ended.
pub type FirstStart = oneshot::Receiver<Result<EntityAddr, String>>;

/// Runs the OSD until `stop` turns true. The thread ends when it has stopped.
pub fn run(
    id: i32,
    make: MakeConfig,
    stop: watch::Receiver<bool>,
) -> std::io::Result<(std::thread::JoinHandle<()>, FirstStart)> {
    let (first_tx, first_rx) = oneshot::channel();
    let thread = task::spawn_role(&format!("osd.{id}"), move || {
        keep_running(id, make, stop, first_tx)
    })?;
    Ok((thread, first_rx))
}

async fn keep_running(
    id: i32,
    make: MakeConfig,
    mut stop: watch::Receiver<bool>,
    first: oneshot::Sender<Result<EntityAddr, String>>,
) {
    let mut first = Some(first);
    let mut wait = RESTART_AFTER;
    loop {
        let config = make();
        let (clock, cluster) = (config.clock.clone(), config.cluster.clone());
        let began = clock.monotonic();
        let (ready_tx, ready_rx) = oneshot::channel();
        let told = first.take();
        let announce = task::spawn_local(async move {
            match (ready_rx.await, told) {
                (Ok(addr), Some(told)) => drop(told.send(Ok(addr))),
                (Err(_), told) => return told,
                _ => {}
            }
            None
        });
        let ended = osd::serve(config, ready_tx, stop.clone()).await;
        let unsaid = announce.await.ok().flatten();
        let Err(error) = ended else { return };
        if let Some(told) = unsaid {
            // The very first start failed: whoever started the node decides.
            let _ = told.send(Err(error.to_string()));
            return;
        }
        if let Err(e) = cluster.osd_down(id).await {
            tracing::warn!("osd.{id}: not marked down: {e}");
        }
        if clock.monotonic().saturating_sub(began) > STEADY {
            wait = RESTART_AFTER;
        }
        tracing::error!("osd.{id}: {error}; starting it again in {} s", wait.as_secs());
        tokio::select! {
            _ = stop.wait_for(|s| *s) => return,
            () = task::sleep(wait) => {}
        }
        wait = (wait * 2).min(RESTART_AFTER_MAX);
    }
}
