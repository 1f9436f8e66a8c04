//! Tables of cells.

/// A struct of cells, with what is told of each:
///
/// ```text
/// metrics::table! {
///     /// What the gate counts.
///     pub struct Gate {
///         passed: metrics::Counter = metrics::spec("Persons that passed").priority(5);
///     }
/// }
/// let gate = Gate::default();
/// gate.passed.inc();
/// assert_eq!(gate.passed.get(), 1);
/// ```
#[macro_export]
macro_rules! table {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident: $cell:ty = $spec:expr;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name { $(pub $field: $cell,)* }

        impl $crate::Table for $name {
            fn visit<'a>(&'a self, each: &mut dyn FnMut(&'static $crate::Spec, $crate::Value<'a>)) {
                $({
                    static SPEC: $crate::Spec =
                        $spec.named(stringify!($field), <$cell as $crate::Cell>::KIND);
                    each(&SPEC, $crate::Cell::read(&self.$field));
                })*
            }

            fn reset(&self) {
                $($crate::Cell::reset(&self.$field);)*
            }
        }
    };
}
