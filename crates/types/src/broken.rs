//! Rules that tests may break, to show that tests and the simulation would notice: what each crate's `broken` module is
//! made of.
//!
//! Invariants: a rule is broken only in the thread that asked for it, and only in builds with debug assertions; in all others
//! `is` is a constant, the switch does not exist, and what stands behind `broken::is` is not compiled into anything.

/// Declares a crate's rules, each with the module that it belongs to; its documentation says what holds.
#[macro_export]
macro_rules! breakable_rules {
    ($($(#[doc = $doc:literal])+ $module:literal $name:ident,)+) => {
        /// What can be broken; each where the code says `broken::is`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Of which part of the crate.
            pub fn module(self) -> &'static str {
                match self {
                    $(Self::$name => $module,)+
                }
            }

            /// What holds where it is not broken.
            pub fn says(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                }
            }
        }

        #[cfg(debug_assertions)]
        mod switch {
            use super::Rule;
            use std::cell::Cell;

            thread_local! {
                static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
            }

            /// Breaks a rule in this thread, or none any more.
            pub fn set(rule: Option<Rule>) {
                BROKEN.with(|b| b.set(rule));
            }

            pub fn is(rule: Rule) -> bool {
                BROKEN.with(|b| b.get() == Some(rule))
            }
        }

        #[cfg(debug_assertions)]
        pub use switch::{is, set};

        #[cfg(not(debug_assertions))]
        pub const fn is(_: Rule) -> bool {
            false
        }
    };
}
