//! What can go wrong with a cache as a whole; single operations answer with their outcome.

use std::path::PathBuf;

use entresol_base::ByteSize;
use entresol_media::{FileError, RegionError};

/// Why a cache could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The medium's region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The medium's or the restart directory's files.
    #[error(transparent)]
    File(#[from] FileError),
    /// A quota holds too few segments.
    #[error(
        "the {quota} of tenant '{tenant}' is {given}, too little for {least_segments} segments of \
         {segment}: give it at least {least}, or lower the value limit or the segment size"
    )]
    QuotaTooSmall {
        /// Which quota.
        quota: &'static str,
        /// Whose.
        tenant: String,
        /// What was given.
        given: ByteSize,
        /// The size of a segment.
        segment: ByteSize,
        /// How many segments a quota holds at least.
        least_segments: u64,
        /// What would do.
        least: ByteSize,
    },
    /// A quota is larger than what there is.
    #[error(
        "the {quota} of tenant '{tenant}' is {given}, more than {limit} has ({available}): lower it"
    )]
    QuotaTooLarge {
        /// Which quota.
        quota: &'static str,
        /// Whose.
        tenant: String,
        /// What was given.
        given: ByteSize,
        /// What limits it.
        limit: &'static str,
        /// How much that has.
        available: ByteSize,
    },
    /// The largest value does not fit into a segment.
    #[error(
        "the value limit of tenant '{tenant}' is {given}, but a segment of {segment} holds values \
         up to {most}: lower it, or raise the segment size (at most {segment_max})"
    )]
    ValueTooLarge {
        /// Whose.
        tenant: String,
        /// What was given.
        given: ByteSize,
        /// The size of a segment.
        segment: ByteSize,
        /// What would do.
        most: ByteSize,
        /// The largest segment.
        segment_max: ByteSize,
    },
    /// A segment size that cannot be.
    #[error(
        "the segment size of tenant '{tenant}' is {given}: use a multiple of 4KiB from {least} to \
         {most}"
    )]
    SegmentBytes {
        /// Whose.
        tenant: String,
        /// What was given.
        given: ByteSize,
        /// The smallest.
        least: ByteSize,
        /// The largest.
        most: ByteSize,
    },
    /// A medium that no cache can lie on.
    #[error("medium '{medium}' of tenant '{tenant}' cannot hold a cache: use dram, pmem: or file:")]
    Medium {
        /// Whose.
        tenant: String,
        /// What was given.
        medium: String,
    },
    /// The restart directory cannot be used.
    #[error(
        "restart directory of tenant '{tenant}': {path}: {cause}; check it and its permissions"
    )]
    RestartDir {
        /// Whose.
        tenant: String,
        /// The directory, or a file in it.
        path: PathBuf,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// The thread that writes segments could not be started.
    #[error("cannot start the writer thread of tenant '{tenant}': {cause}")]
    Thread {
        /// Whose.
        tenant: String,
        /// The system's answer.
        cause: std::io::Error,
    },
}

/// Why a quota cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Too few segments.
    #[error("a {quota} of {given} is too little: this cache needs at least {least}")]
    TooSmall {
        /// Which quota.
        quota: &'static str,
        /// What was given.
        given: ByteSize,
        /// What would do.
        least: ByteSize,
    },
    /// The medium's file cannot be lengthened.
    #[error(transparent)]
    File(#[from] FileError),
    /// More than there is.
    #[error(
        "a {quota} of {given} is more than there is: at most {most} can be had without a restart"
    )]
    TooLarge {
        /// Which quota.
        quota: &'static str,
        /// What was given.
        given: ByteSize,
        /// What would do.
        most: ByteSize,
    },
}

/// Why a cache's state could not be saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The snapshot could not be written.
    #[error(
        "{path}: {cause}; the cache was not saved, and its next start will find less or nothing"
    )]
    Snapshot {
        /// The snapshot.
        path: PathBuf,
        /// The system's answer.
        cause: std::io::Error,
    },
}
