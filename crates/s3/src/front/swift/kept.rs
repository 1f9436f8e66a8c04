//! What is kept among an object's headers that only Swift looks at: how it is large, and its kind.

use crate::record::Entry;

/// Segments of a dynamic large object: `CONTAINER/PREFIX`, URL encoded, as the client said it.
pub const MANIFEST: &str = "x-object-manifest";
/// `SIZE ETAG` of a static one.
pub const STATIC: &str = "x-static-large-object";
pub const KIND: &str = "application/octet-stream";

/// Size and ETag of the whole, if it is a static large object.
pub fn seen(entry: &Entry) -> Option<(u64, String)> {
    let (size, etag) = entry.attributes.headers.get(STATIC)?.split_once(' ')?;
    Some((size.parse().ok()?, etag.to_string()))
}

/// Made of others.
pub fn is_large(entry: &Entry) -> bool {
    entry.attributes.headers.contains_key(MANIFEST) || seen(entry).is_some()
}

pub fn kind_of(entry: &Entry) -> String {
    let kind = entry.attributes.headers.get("content-type");
    kind.cloned().unwrap_or_else(|| KIND.into())
}

/// Bytes and ETag of an object, as listings say them.
pub fn shown(entry: &Entry) -> (u64, String) {
    seen(entry).unwrap_or((entry.size, entry.etag.clone()))
}
