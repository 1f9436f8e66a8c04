//! The tables of one role.

use crate::spec::{Spec, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A struct of cells ([`crate::table!`]).
pub trait Table: Send + Sync {
    fn visit<'a>(&'a self, each: &mut dyn FnMut(&'static Spec, Value<'a>));
    /// All cells count anew.
    fn reset(&self);
}

type Tables = Vec<(String, Arc<dyn Table>)>;

/// Cheap to clone: the clones are the same registry. The lock is for adding and listing, never for counting.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Tables>>);

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.tables().iter().map(|t| &t.0))
            .finish()
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A table under this logger; one that there is goes: a role that begins anew counts anew.
    pub fn add<T: Table + 'static>(&self, logger: &str, table: Arc<T>) {
        let mut tables = self.lock();
        tables.retain(|(name, _)| name != logger);
        let at = tables.partition_point(|(name, _)| name.as_str() < logger);
        tables.insert(at, (logger.to_string(), table));
    }

    /// A new table under this logger.
    pub fn make<T: Table + Default + 'static>(&self, logger: &str) -> Arc<T> {
        let table = Arc::new(T::default());
        self.add(logger, table.clone());
        table
    }

    /// The loggers for which this holds are gone, with what they counted.
    pub fn remove(&self, which: impl Fn(&str) -> bool) {
        self.lock().retain(|(name, _)| !which(name));
    }

    /// The tables, in the order of their names.
    pub fn tables(&self) -> Vec<(String, Arc<dyn Table>)> {
        self.lock().clone()
    }

    /// Has a table's cells count anew, or all tables' (`all`). False: there is no such logger.
    pub fn reset(&self, logger: &str) -> bool {
        let tables = self.tables();
        let named = tables
            .iter()
            .filter(|(name, _)| logger == "all" || name == logger);
        named.map(|(_, table)| table.reset()).count() > 0
    }

    /// Every cell: its logger, what it is, what it holds.
    pub fn visit(&self, each: &mut dyn FnMut(&str, &'static Spec, Value<'_>)) {
        for (logger, table) in self.tables() {
            table.visit(&mut |spec, value| each(&logger, spec, value));
        }
    }
}
