//! The object gateway: S3 and Swift over our RADOS client, in front of Skep or of a Ceph, with operations that every OSD has.
//!
//! Vocabulary: a *bucket* has an *index*, an ordered map of its objects' *entries* in *shards* (`index`); an object's bytes are
//! *stripes* under a *tag* (`data`); an *intent* names data that nobody refers to yet, *garbage* data that nobody refers to any more
//! (`gc`). docs/internals/objects.md has the rows and the invariants.
//!
//! Rooms, from the bottom up: `rados` (what is asked of a pool) with `remembered` (what need not be asked again), `place` with `record` and `summary` (what is written), `seal` (encryption at rest) with `master`, `policy`, `cors`, `website` and `lifecycle` (what is allowed, what browsers get, and for how long), `classes` (which pool data are in), `index`, `data` with `claims` and `spares`, `history` (the versions of a key), `objects` with
//! `multipart` and `moving`, `accounts`, `buckets` with `counts`, `quota` and `rate`, `expiry`, `notify` with `topics`, `endpoints` and `courier` (what owners are told of changes), `gc` and `check` with `queues`, `meters` with `event_figures` (what is counted), `survey` (what there is, for who looks), `usage` and `logs` (what is written down of that), `container` and `subusers` (what Swift has beside), `roles` and `session` (who acts in another's place), `caps` (who may make roles), `keystone` (users of another system), and the `front`, which alone knows of requests, S3's and Swift's.

mod accounts;
mod amount;
mod buckets;
mod calendar;
mod caps;
mod check;
mod claims;
mod classes;
mod clock;
mod container;
mod cors;
mod counts;
mod courier;
mod data;
mod endpoints;
mod error;
mod event_figures;
mod expiry;
#[cfg(test)]
mod fake;
pub mod forms;
mod front;
mod gateway;
mod gc;
mod history;
mod index;
mod keystone;
mod lifecycle;
mod logs;
mod master;
mod meters;
mod moving;
mod multipart;
mod names;
mod notify;
mod objects;
mod place;
mod policy;
mod queues;
mod quota;
mod rados;
mod rate;
mod record;
mod remembered;
mod roles;
mod seal;
mod session;
mod settings;
mod spares;
mod subusers;
mod summary;
mod survey;
mod tally;
#[cfg(test)]
mod tests;
mod topics;
mod usage;
mod version;
mod version_list;
mod website;

pub use accounts::{Key, User};
pub use amount::{Amount, Count};
pub use check::Report;
pub use classes::{Class, STANDARD};
pub use clock::Clock;
pub use error::{Error, Result};
#[cfg(feature = "testing")]
pub use front::testing;
pub use front::{Settings, Swift, domain};
pub use gateway::{Admin, BucketStats, DATA_POOL, Gateway, META_POOL, check};
pub use keystone::Settings as KeystoneSettings;
pub use master::Masters;
pub use net::tls::Certificate;
pub use quota::{Quota, Scope};
pub use rate::{Rate, RateScope};
pub use roles::{Role, SESSION_DEFAULT};
pub use subusers::{Access, Subuser};
pub use survey::{BucketFacts, Page, Survey, UserFacts};
pub use usage::{Kinds as UsageKinds, Place as UsagePlace, Sums, Usage, Which as UsageWhich};
