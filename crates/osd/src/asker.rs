//! Where the answer to a command goes.

use forms::Form;
use net::ConnId;

#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub conn: ConnId,
    pub tid: u64,
    pub form: Form,
    /// What was asked, for the names in XML.
    pub prefix: &'static str,
}
