//! One thread for the main futures of several groups, as tasks of one runtime: what they hand to one another takes no call of the
//! kernel, and one wait hears of what is ready for any of them (docs/decisions/0016-shared-threads.md).
//!
//! Each group is confined as if it had the thread for itself: a panic in one of its tasks is the group's, which ends with all
//! that it spawned while the others go on. What they share is the processor: a task that blocks stalls them all, so long work
//! is done [aside](crate::task::aside).
//!
//! Not here: blocking threads of the runtime, which belong to no group.

use crate::group::Group;
use crate::task::{Main, Place, runtime, until_panic};
use crate::thread;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, LocalSet};

type Task = Pin<Box<dyn Future<Output = ()>>>;
type Start = Box<dyn FnOnce() -> Task + Send>;

/// It ends when no handle is left and all that it runs has ended.
#[derive(Clone)]
pub struct SharedThread {
    // As many as there are roles to start.
    starts: mpsc::UnboundedSender<Start>,
}

impl SharedThread {
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = runtime(None)?;
        let (starts, mut wanted) = mpsc::unbounded_channel::<Start>();
        thread::spawn_in(None, name, move || {
            runtime.block_on(LocalSet::new().run_until(async move {
                let mut tasks = JoinSet::new();
                loop {
                    tokio::select! {
                        start = wanted.recv() => match start {
                            Some(start) => drop(tasks.spawn_local(start())),
                            None => break,
                        },
                        // A panic in one is told to its group.
                        Some(_) = tasks.join_next() => {}
                    }
                }
                while tasks.join_next().await.is_some() {}
            }));
        })?;
        Ok(Self { starts })
    }

    /// Runs `role()` as the main future of the group, as [`crate::task::spawn_group`] does on a thread of its own.
    pub fn spawn_group<R, F, T>(&self, group: &Group, role: R) -> io::Result<Main<T>>
    where
        R: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (done, told) = oneshot::channel();
        // Counted like a thread, and until the very end: also where the task is dropped or never starts.
        let member = group.member();
        let group = group.clone();
        let start: Start = Box::new(move || {
            let fallen = group.clone();
            let main = async move {
                let local = LocalSet::new();
                let ended = local.run_until(until_panic(fallen, role)).await;
                // With all tasks of the group.
                drop(local);
                ended
            };
            let inside = Inside {
                group,
                main: Some(Box::pin(main)),
            };
            Box::pin(async move {
                let _member = member;
                if let Some(ended) = inside.await {
                    // Nobody may care.
                    let _ = done.send(ended);
                }
            })
        });
        let gone = |_| io::Error::other("the thread that it shares with others has ended");
        self.starts.send(start).map_err(gone)?;
        Ok(Main(Place::Shared(told)))
    }
}

/// A future that is polled, and dropped, as a part of its group.
struct Inside<T> {
    group: Group,
    /// None: it has ended.
    main: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<T> Inside<T> {
    fn end(&mut self) {
        let _here = self.group.enter();
        self.main = None;
    }
}

impl<T> Future for Inside<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = {
            let _here = self.group.enter();
            match &mut self.main {
                Some(main) => main.as_mut().poll(cx),
                None => Poll::Pending,
            }
        };
        if polled.is_ready() {
            self.end();
        }
        polled
    }
}

impl<T> Drop for Inside<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::group::watch_panics;
    use crate::task::{block_on, sleep, spawn_local, timeout};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(120);

    /// Counts how often it is dropped, and in which group.
    struct Noted(Arc<AtomicU32>, &'static str);

    impl Drop for Noted {
        fn drop(&mut self) {
            assert_eq!(Group::current().unwrap().name(), self.1);
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn ended(group: &Group) {
        timeout(LONG, group.ended()).await.expect("it ends");
    }

    #[test]
    fn they_run_on_one_thread_and_each_says_how_it_ended() {
        let thread = SharedThread::start("shared").unwrap();
        let (one, other) = (Group::new("one"), Group::new("other"));
        let who = || async {
            (
                std::thread::current().id(),
                Group::current().unwrap().name().to_owned(),
            )
        };
        let (a, b) = (
            thread.spawn_group(&one, who).unwrap(),
            thread.spawn_group(&other, who).unwrap(),
        );
        block_on(async {
            ended(&one).await;
            ended(&other).await;
        })
        .unwrap();
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert_eq!((a.1.as_str(), b.1.as_str()), ("one", "other"));
        assert_eq!(a.0, b.0);
    }

    #[test]
    fn a_panic_ends_the_group_whose_it_is_and_no_other() {
        watch_panics();
        let thread = SharedThread::start("shared").unwrap();
        let dropped = Arc::new(AtomicU32::new(0));
        let good = Group::new("good");
        let (stop, stopped) = oneshot::channel::<u32>();
        let stays = thread
            .spawn_group(&good, || async { stopped.await.unwrap() })
            .unwrap();
        let panics: [(&str, fn()); 3] = [
            ("in main", || panic!("in main")),
            ("in a task", || drop(spawn_local(async { panic!("in a task") }))),
            ("in a helper", || {
                drop(thread::spawn("helper", || panic!("in a helper")).unwrap())
            }),
        ];
        for (what, panics) in panics {
            let bad = Group::new("bad");
            let (in_main, in_task) = (Noted(dropped.clone(), "bad"), Noted(dropped.clone(), "bad"));
            let falls = thread.spawn_group(&bad, move || async move {
                let _held = in_main;
                spawn_local(async move {
                    let _held = in_task;
                    std::future::pending::<()>().await;
                });
                crate::task::yield_now().await;
                panics();
                std::future::pending::<()>().await;
            });
            block_on(ended(&bad)).unwrap();
            let panic = bad.panic().unwrap();
            let thread = if what == "in a helper" { "helper" } else { "bad" };
            assert_eq!((panic.what.as_str(), panic.thread.as_str()), (what, thread));
            assert_eq!(falls.unwrap().join(), None);
        }
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            6,
            "the main future and the task, each time"
        );
        assert!(good.panic().is_none());
        stop.send(7).unwrap();
        block_on(ended(&good)).unwrap();
        assert_eq!(stays.join(), Some(7), "it went on");
    }

    #[test]
    fn who_waits_for_work_aside_does_not_hold_up_the_others() {
        let thread = SharedThread::start("shared").unwrap();
        let (slow, quick) = (Group::new("slow"), Group::new("quick"));
        let (go, wait) = std::sync::mpsc::channel();
        let works = thread.spawn_group(&slow, || async {
            let work = move || (wait.recv().unwrap(), Group::current().unwrap().name().to_owned());
            crate::task::aside("work", work).await.unwrap()
        });
        // It ends only if the thread is not held up.
        let passes = thread
            .spawn_group(&quick, || async { sleep(Duration::from_millis(1)).await })
            .unwrap();
        block_on(ended(&quick)).unwrap();
        assert_eq!(passes.join(), Some(()));
        go.send(5).unwrap();
        block_on(ended(&slow)).unwrap();
        assert_eq!(works.unwrap().join(), Some((5, "slow".to_owned())));
    }
}
