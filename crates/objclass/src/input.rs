//! A method's input: decoded field by field, EINVAL where it ends early. What follows the last field is
//! ignored, and some methods take its presence for an optional field.

use crate::context::Result;
use bytes::Bytes;
use denc::{Decode, Reader};
use types::Errno;

pub struct Input(Reader);

impl Input {
    pub fn new(bytes: Bytes) -> Self {
        Self(Reader::new(bytes))
    }

    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(&mut self.0).map_err(|_| Errno::EINVAL)
    }

    /// The field if any byte is left, else `None`.
    pub fn optional<T: Decode>(&mut self) -> Result<Option<T>> {
        if self.0.is_empty() {
            Ok(None)
        } else {
            self.get().map(Some)
        }
    }

    /// All bytes from here.
    pub fn rest(&mut self) -> Bytes {
        self.0.rest()
    }

    /// A struct in an envelope up to version `known`.
    pub fn versioned<T>(
        &mut self,
        known: u8,
        body: impl FnOnce(u8, &mut Reader) -> denc::Result<T>,
    ) -> Result<T> {
        self.0.envelope(known, body).map_err(|_| Errno::EINVAL)
    }

    /// A struct in a version 1 envelope.
    pub fn envelope<T>(&mut self, body: impl FnOnce(&mut Reader) -> denc::Result<T>) -> Result<T> {
        self.versioned(1, |_, r| body(r))
    }
}
