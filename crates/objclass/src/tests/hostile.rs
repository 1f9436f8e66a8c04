//! Hostile inputs and states.
