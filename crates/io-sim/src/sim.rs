//! One run: the runtime with virtual time, the network, and what is drawn from the seed.

use crate::{Dice, Process, SimClock, SimNet, SimRandom, Trace, entropy};
use io::{Clock, Random};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a simulation's main task holds; clones are the same simulation.
#[derive(Debug, Clone)]
pub struct Sim {
    pub seed: u64,
    pub trace: Trace,
    pub net: SimNet,
    start: Instant,
}

impl Sim {
    /// A generator for one purpose: adding another purpose leaves it as it is.
    pub fn dice(&self, purpose: &str) -> Dice {
        Dice::new(self.sub_seed(purpose))
    }

    pub fn random(&self, purpose: &str) -> Arc<dyn Random> {
        SimRandom::shared(self.sub_seed(purpose))
    }

    fn sub_seed(&self, purpose: &str) -> u64 {
        purpose.bytes().fold(Dice::new(self.seed).roll(), |h, b| {
            Dice::new(h ^ u64::from(b)).roll()
        })
    }

    pub fn clock(&self, skew: Duration, drift_ppm: i32) -> Arc<dyn Clock> {
        Arc::new(SimClock::new(self.start, skew, drift_ppm))
    }

    /// Virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn start<F: Future<Output = ()> + 'static>(&self, host: IpAddr, main: F) -> Process {
        Process::start(host, main)
    }
}

/// Runs `main` to its end in a simulation of its own, on this thread. `sink` gets the trace as it grows.
pub fn run<T, F, M>(seed: u64, sink: Option<fn(&str)>, main: M) -> std::io::Result<T>
where
    F: Future<Output = T>,
    M: FnOnce(Sim) -> F,
{
    entropy::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let local = tokio::task::LocalSet::new();
    let out = runtime.block_on(local.run_until(async move {
        let start = Instant::now();
        let trace = Trace::new(start, sink);
        let net = SimNet::new(Dice::new(seed ^ 0x006e_6574), trace.clone());
        io::socket::use_network(Some(Arc::new(net.clone())));
        let postman = net.clone();
        tokio::task::spawn_local(async move { postman.deliver().await });
        main(Sim {
            seed,
            trace,
            net,
            start,
        })
        .await
    }));
    // Sockets close while their network is still there.
    drop(local);
    io::socket::use_network(None);
    Ok(out)
}
