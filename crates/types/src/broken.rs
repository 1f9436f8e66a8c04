//! Rules that tests may break, to show that tests and the simulation would notice: what each crate's `broken` module is
//! made of.
//!
//! Invariants: a rule is broken only in the thread that asked for it, or, where [`VARIABLE`] names it, in all threads for the
//! program's whole life; and only in builds with debug assertions. In all others `is` is a constant, the switch does not
//! exist, and what stands behind `broken::is` is not compiled into anything.

/// Names the rules that are broken in all threads, as `crate::Rule`, with commas between them: for tests of which the program
/// has threads of its own.
pub const VARIABLE: &str = "SKEP_BROKEN";

/// Those of one crate. A rule that its table does not have would pass for one that nobody notices.
#[cfg(debug_assertions)]
pub fn in_all_threads<R: Copy>(of: &str, all: &[R], name: fn(R) -> &'static str) -> Vec<R> {
    named(&std::env::var(VARIABLE).unwrap_or_default(), of, all, name)
}

#[cfg(debug_assertions)]
fn named<R: Copy>(rules: &str, of: &str, all: &[R], name: fn(R) -> &'static str) -> Vec<R> {
    let named = rules.split(',').filter_map(|n| n.trim().split_once("::"));
    let of_crate = named.filter(|(named, _)| *named == of).map(|(_, rule)| {
        let found = all.iter().find(|r| name(**r) == rule);
        assert!(found.is_some(), "{VARIABLE}: {of} has no rule {rule}");
        found
    });
    of_crate.flatten().copied().collect()
}

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
            use std::sync::LazyLock;

            static EVERYWHERE: LazyLock<Vec<Rule>> = LazyLock::new(|| {
                $crate::broken::in_all_threads(env!("CARGO_PKG_NAME"), Rule::ALL, Rule::name)
            });

            thread_local! {
                static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
            }

            /// Breaks a rule in this thread, or none any more.
            pub fn set(rule: Option<Rule>) {
                BROKEN.with(|b| b.set(rule));
            }

            pub fn is(rule: Rule) -> bool {
                BROKEN.with(|b| b.get() == Some(rule)) || EVERYWHERE.contains(&rule)
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

#[cfg(all(test, debug_assertions))]
mod tests {
    const ALL: [&str; 2] = ["First", "Second"];

    fn named(rules: &str) -> Vec<&'static str> {
        super::named(rules, "store", &ALL, |r| r)
    }

    #[test]
    fn rules_of_the_crate_are_named() {
        assert!(named("").is_empty());
        assert!(named("pg::Third").is_empty());
        assert_eq!(named("store::Second"), ["Second"]);
        assert_eq!(
            named("pg::Third, store::First,store::Second"),
            ["First", "Second"]
        );
    }

    #[test]
    #[should_panic(expected = "store has no rule Third")]
    fn a_rule_that_is_not_there_is_no_survivor() {
        named("store::Third");
    }
}
