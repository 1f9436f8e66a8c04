//! Threads that fall together: those of one role of the process.
//!
//! A thread belongs to the group of the one that started it, unless it was started for another
//! ([`crate::task::spawn_group`]). So whatever a role starts, deep inside its libraries, is the role's, without being
//! handed around; the blocking threads of its runtime are, too. A thread that several groups share
//! ([`crate::shared_thread`]) belongs to one of them for as long as it runs one of its tasks.
//!
//! A panic in any of them is the group's. It is taken by the panic hook ([`watch_panics`]), because a runtime swallows a
//! panic in a task, and nobody waits for most helper threads. It is logged with its backtrace and told to who looks
//! after the group, which also ends the group's main future ([`crate::task::spawn_group`]).
//!
//! Invariant: [`Group::ended`] completes only when no thread of the group runs, so nothing that they own is left.
//! Not here: what follows (`node::supervise`).

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Once};
use tokio::sync::watch;

/// Lines of a backtrace that are logged; a longer one is that of an endless recursion.
const TRACE_LINES_MAX: usize = 200;

thread_local! {
    static CURRENT: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Whose the calling thread is just now.
#[derive(Debug, Clone)]
struct Here {
    group: Group,
    /// The thread is shared, and runs a task of this group.
    shared: bool,
}

impl Here {
    fn get() -> Option<Self> {
        // Asked by the panic hook, too: a thread that is ending has none.
        let get = |c: &RefCell<Option<Self>>| c.try_borrow().ok().and_then(|c| c.clone());
        CURRENT.try_with(get).ok().flatten()
    }

    /// Gives what was there before.
    fn set(here: Option<Self>) -> Option<Self> {
        CURRENT.with(|c| c.replace(here))
    }
}

/// See [`Group::enter`].
pub(crate) struct Entered(Option<Here>);

impl Drop for Entered {
    fn drop(&mut self) {
        Here::set(self.0.take());
    }
}

/// Where a thread of a group panicked, and over what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// Of a thread that is shared: the group's name.
    pub thread: String,
    pub what: String,
    /// `file:line`.
    pub place: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} panicked: {} ({})",
            self.thread, self.what, self.place
        )
    }
}

#[derive(Debug, Default)]
struct State {
    threads: usize,
    panic: Option<Panic>,
    /// Of the first panic.
    trace: Vec<String>,
    /// Backtraces that are being logged.
    speaking: usize,
}

#[derive(Debug)]
struct Shared {
    name: String,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone)]
pub struct Group(Arc<Shared>);

impl Group {
    /// A group without threads. The name says in the log whose they are.
    pub fn new(name: &str) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            state: watch::Sender::default(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// That of the calling thread.
    pub fn current() -> Option<Self> {
        Here::get().map(|here| here.group)
    }

    /// The calling thread belongs to it from now on, and is not counted.
    pub fn adopt(&self) {
        let group = self.clone();
        Here::set(Some(Here { group, shared: false }));
    }

    /// The calling thread, which is shared, belongs to it until this is dropped.
    pub(crate) fn enter(&self) -> Entered {
        let group = self.clone();
        Entered(Here::set(Some(Here { group, shared: true })))
    }

    /// The first panic of its threads, if there was one.
    pub fn panic(&self) -> Option<Panic> {
        self.0.state.borrow().panic.clone()
    }

    /// The lines of the backtrace of the first panic, once it was logged ([`Self::has_spoken`]).
    pub fn trace(&self) -> Vec<String> {
        self.0.state.borrow().trace.clone()
    }

    /// Completes when a thread of it has panicked, which it may not have ended by yet.
    pub async fn panicked(&self) -> Panic {
        let mut news = self.0.state.subscribe();
        // The sender is ours, so it is there.
        let found = news.wait_for(|s| s.panic.is_some()).await;
        match found.ok().and_then(|s| s.panic.clone()) {
            Some(panic) => panic,
            None => std::future::pending().await,
        }
    }

    /// Completes when none of its threads runs.
    pub async fn ended(&self) {
        let mut news = self.0.state.subscribe();
        // As above.
        let _ = news.wait_for(|s| s.threads == 0).await;
    }

    /// Completes when no backtrace of it is on its way into the log: before that the process should not end.
    pub async fn has_spoken(&self) {
        let mut news = self.0.state.subscribe();
        // As above.
        let _ = news.wait_for(|s| s.speaking == 0).await;
    }

    /// Counts a thread that is about to be started.
    pub(crate) fn member(&self) -> Member {
        self.0.state.send_modify(|s| s.threads += 1);
        Member(self.clone())
    }

    fn on_panic(&self, info: &PanicHookInfo<'_>, shared: bool) {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
        let panic = Panic {
            thread: match (shared, std::thread::current().name()) {
                (true, _) => self.name().to_owned(),
                (false, name) => name.unwrap_or("without a name").to_owned(),
            },
            what: text.unwrap_or("no words").to_owned(),
            place: place.unwrap_or_default(),
        };
        let trace = Arc::new(Backtrace::force_capture());
        tracing::error!("{}: {panic}", self.name());
        self.0.state.send_modify(|s| {
            s.panic.get_or_insert(panic);
        });
        // Turning addresses into names takes some tenths of a second, for which this thread would hold what others wait for.
        // With the main thread the process may end.
        let (speech, copy) = (Speech::begin(self), trace.clone());
        let elsewhere = move || speech.say(&copy);
        let is_main = std::thread::current().name() == Some("main");
        if is_main || crate::thread::spawn_in(None, "backtrace", elsewhere).is_err() {
            Speech::begin(self).say(&trace);
        }
    }
}

/// A backtrace on its way into the log.
struct Speech(Group);

impl Speech {
    fn begin(group: &Group) -> Self {
        group.0.state.send_modify(|s| s.speaking += 1);
        Self(group.clone())
    }

    fn say(self, trace: &Backtrace) {
        let name = self.0.name();
        let lines: Vec<String> = trace
            .to_string()
            .lines()
            .take(TRACE_LINES_MAX)
            .map(str::to_owned)
            .collect();
        for line in &lines {
            tracing::error!("{name}: {line}");
        }
        self.0.0.state.send_modify(|s| {
            if s.trace.is_empty() {
                s.trace = lines;
            }
        });
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        self.0.0.state.send_modify(|s| s.speaking -= 1);
    }
}

/// One thread's part in its group, for as long as it runs.
#[derive(Debug)]
pub(crate) struct Member(Group);

impl Member {
    /// Called on the thread itself.
    pub fn enter(&self) {
        self.0.adopt();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.state.send_modify(|s| s.threads -= 1);
    }
}

/// From now on the process sees the panics of its groups' threads; those of other threads go where they went.
pub fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let here = Here::get();
            if let Some(here) = &here {
                here.group.on_panic(info, here.shared);
            }
            // Where nobody reads the log, as in tests, they would be lost.
            if here.is_none() || !tracing::enabled!(tracing::Level::ERROR) {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{block_on, sleep, spawn_group, spawn_local, timeout};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// Runs `role` as a group's main future: its panic, if it had one, and what the future ended with.
    fn run<F>(role: impl FnOnce() -> F + Send + 'static) -> (Option<Panic>, Option<&'static str>)
    where
        F: Future<Output = &'static str> + 'static,
    {
        watch_panics();
        let group = Group::new("role");
        block_on(async {
            let thread = spawn_group(&group, "main", role).unwrap();
            // Only what hangs is ended by it: a panic's backtrace alone takes long on a busy machine.
            timeout(Duration::from_secs(120), group.ended())
                .await
                .expect("all its threads end");
            (group.panic(), thread.join())
        })
        .unwrap()
    }

    #[test]
    fn a_role_that_ends_by_itself_says_how() {
        assert_eq!(run(|| async { "done" }), (None, Some("done")));
    }

    #[test]
    fn a_panic_of_its_main_thread_is_seen() {
        let (panic, ended) = run(|| async { panic!("in {}", "main") });
        let panic = panic.unwrap();
        assert_eq!((panic.thread.as_str(), panic.what.as_str()), ("main", "in main"));
        assert!(panic.place.contains("group.rs:"), "{panic}");
        assert_eq!(ended, None);
    }

    #[test]
    fn a_panic_of_a_task_ends_the_role() {
        let (panic, ended) = run(|| async {
            spawn_local(async { panic!("in a task") });
            std::future::pending().await
        });
        assert_eq!(panic.unwrap().what, "in a task");
        assert_eq!(ended, None);
    }

    #[test]
    fn a_panic_of_a_thread_that_it_started_ends_the_role() {
        let (panic, ended) = run(|| async {
            crate::thread::spawn("helper", || panic!("in a helper")).unwrap();
            std::future::pending().await
        });
        let panic = panic.unwrap();
        assert_eq!(
            (panic.thread.as_str(), panic.what.as_str()),
            ("helper", "in a helper")
        );
        assert_eq!(ended, None);
    }

    #[test]
    fn a_panic_of_the_runtimes_own_threads_ends_the_role() {
        let (panic, _) = run(|| async {
            drop(tokio::task::spawn_blocking(|| panic!("in the runtime")));
            std::future::pending().await
        });
        assert_eq!(panic.unwrap().what, "in the runtime");
    }

    #[test]
    fn it_has_not_ended_before_its_last_thread() {
        static OVER: AtomicBool = AtomicBool::new(false);
        let (panic, _) = run(|| async {
            crate::thread::spawn("slow", || {
                block_on(async { sleep(Duration::from_millis(100)).await }).unwrap();
                OVER.store(true, Ordering::SeqCst);
            })
            .unwrap();
            panic!("at once")
        });
        assert_eq!(panic.unwrap().what, "at once");
        assert!(OVER.load(Ordering::SeqCst), "the helper has ended, too");
    }

    #[test]
    fn groups_do_not_see_one_another() {
        watch_panics();
        let (one, other) = (Group::new("one"), Group::new("other"));
        block_on(async {
            drop(spawn_group(&one, "one", || async { panic!("here") }).unwrap());
            let good = spawn_group(&other, "other", || async { 7 }).unwrap();
            one.ended().await;
            other.ended().await;
            assert_eq!(good.join(), Some(7));
        })
        .unwrap();
        assert!(one.panic().is_some() && other.panic().is_none());
    }
}
