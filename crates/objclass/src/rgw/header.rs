//! Reading and writing the header of an index.

use super::types::Header;
use crate::context::Result;
use crate::object::Object;

/// The index's header; an object without one has an empty one.
pub fn load_header(object: &mut Object<'_>) -> Result<Header> {
    Ok(object.omap_header()?.unwrap_or_default())
}

/// Writes the header as of one change more.
pub fn save_header(object: &mut Object<'_>, header: &mut Header) -> Result<()> {
    header.ver = header.ver.wrapping_add(1);
    object.set_omap_header(header)
}
