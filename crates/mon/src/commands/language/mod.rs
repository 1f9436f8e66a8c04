//! The language of commands: signatures, the text of a request, the names in it.

pub mod ids;
pub mod json_text;
pub mod request;
pub mod signature;
