//! Versions of what the gateway keeps: the newest that it writes, and that it reads. Each is written under the first version that has all that is set in it.
//!
//! Not here: the encodings, each of which lies beside its type; rows that have had one version only, but for those that the release before lacks.

pub use crate::buckets::WITH_SETTINGS as BUCKET;
pub use crate::expiry::WITH_NEWER as WALK;
pub use crate::lifecycle::WITH_MOVES as RULE;
pub use crate::place::{KINDS as DATA, WITH_ORIGIN as PIECE};
pub use crate::record::{SEALED as ENTRY, SEALED as UPLOAD};
pub use crate::record::{WITH_CLASS as ATTRIBUTES, WITH_PLACE as INTENT, WITH_VERSIONS as SHARD};
pub use crate::settings::KNOWN as SETTINGS;
pub use crate::topics::FORM as TOPICS;
