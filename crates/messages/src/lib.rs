//! Every message body, a file per family. Each type encodes to and decodes from a [`msgr::Message`].

pub mod fs;
pub mod mon;
pub mod osd;
