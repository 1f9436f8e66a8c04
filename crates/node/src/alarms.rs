//! The worker of alarms, beside the monitor of this process.

use crate::role::MonitorAccess;
use io::clock::Clock;
use io::task;
use metastore::ClusterHandle;
use std::sync::Arc;

/// Works for as long as the process runs.
pub(crate) fn start(access: MonitorAccess, cluster: ClusterHandle, clock: Arc<dyn Clock>, mgr_name: String) {
    let ask: alarms::Ask = Box::new(move |command| {
        let access = access.clone();
        Box::pin(async move {
            let said = access.ask(command.to_string()).await;
            said.filter(|a| a.code == 0).map(|a| a.data.to_vec())
        })
    });
    drop(task::spawn_local(alarms::run(alarms::Config {
        ask,
        cluster,
        clock,
        mgr_name,
    })));
}
