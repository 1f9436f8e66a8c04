//! Names of users and subusers.

use crate::{Error, Result};

pub const NAME_MAX: usize = 128;

/// Names that are the same in a path, a line of a table and a shell.
pub fn check_name(id: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-@+=".contains(c);
    match !id.is_empty() && id.len() <= NAME_MAX && id.chars().all(good) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a user's name has 1 to {NAME_MAX} letters, digits and . _ - @ + ="
        ))),
    }
}
