//! Keys of stores that are encrypted, out of a file.

use super::outcome::Fail;
use io::key_file::KeyFile;
use std::path::Path;

pub fn of(file: Option<&Path>) -> Result<Option<KeyFile>, Fail> {
    file.map(KeyFile::read).transpose().map_err(Fail::Usage)
}
