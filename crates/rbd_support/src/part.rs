//! Work beside the worker's loop, which goes on until it has ended or is stopped.

use io::task::TaskHandle;

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
