//! (laid out; being written)
