//! Rules of the store that tests may break, to show that the crash tests and the simulation would notice (`simtest mutants`).

types::breakable_rules! {
    /// The first batch of a life is a flushed marker.
    "open" MarkerAtOpen,
    /// The last batch of the log counts only if its direct extents are whole.
    "open" LastDirectsWhole,
    /// The last batch of the log counts if they are.
    "open" LastCounts,
    /// A batch counts only if its records are what its checksum says.
    "open" TornIsNone,
    /// Batches of an earlier life end where a later one begins.
    "open" LaterLifeOnly,
    /// Each life has a number of its own.
    "open" LifeIsNew,
    /// All rows of the allocator count.
    "open" TakenWhole,
    /// Blocks that the log names are taken.
    "open" ReplayTakes,
    /// A blob that falls into two parts has one more reference.
    "blobs" PartsCount,
    /// A blob is freed when its last part goes.
    "blobs" LastPartFrees,
    /// Transactions are numbered on from the log's end.
    "open" SeqGoesOn,
    /// Freed blocks are taken again only after the checkpoint that frees them.
    "committer" FreedBlocksWait,
    /// A batch is durable when its flush has ended.
    "committer" FlushedFirst,
    /// Every batch is flushed.
    "committer" EveryFlush,
    /// Only a batch without direct extents is made durable by its own write.
    "committer" AloneIsLight,
    /// A batch's direct extents are written before its flush.
    "committer" OwnDirects,
    /// Durable is what was in the batch.
    "committer" DurableExact,
    /// A flush that failed is final.
    "committer" FailedIsFinal,
    /// A checkpoint is written when its marker is durable.
    "committer" MarkerFirst,
    /// What is written back is flushed before the index says so.
    "committer" WrittenBackFirst,
    /// The log is needed from behind the marker on.
    "committer" BehindTheMarker,
}
