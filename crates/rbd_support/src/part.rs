//! Work beside the worker's loop, which goes on until it has ended or is stopped.

use io::task::{TaskHandle, sleep};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Work that has had no progress for so long is stuck: the OSDs that it needs do not answer.
pub const STUCK_AFTER: Duration = Duration::from_secs(600);
/// That a look at what there is waits for each answer.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Part<T>(pub TaskHandle<T>);

impl<T> Part<T> {
    /// What it gave, once it has ended; None where it panicked, which ends the role.
    pub async fn ended(self) -> Option<T> {
        self.0.await.ok()
    }

    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    pub fn abort(&self) {
        self.0.abort();
    }
}

/// Carries out `work`, which counts `steps`; None: it made none `after` so long, and is given up.
pub async fn unless_stuck<T>(after: Duration, steps: &AtomicU64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        let before = steps.load(Ordering::Relaxed);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = sleep(after) => {}
        }
        if steps.load(Ordering::Relaxed) == before {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    #[test]
    fn only_what_has_no_progress_is_stuck() {
        const AFTER: Duration = Duration::from_millis(1);
        let main = async {
            let steps = AtomicU64::new(0);
            let hangs = std::future::pending::<()>();
            assert_eq!(unless_stuck(AFTER, &steps, hangs).await, None);
            // A step whenever somebody looks, and nothing else wakes it.
            let slow = std::future::poll_fn(|_| match steps.fetch_add(1, Ordering::Relaxed) {
                9.. => Poll::Ready(()),
                _ => Poll::Pending,
            });
            assert_eq!(unless_stuck(AFTER, &steps, slow).await, Some(()));
        };
        io::task::block_on(main).unwrap();
    }
}
