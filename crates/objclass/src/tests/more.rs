//! What the recordings do not cover.
