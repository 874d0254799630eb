//! Errors of a cache as a whole; single operations answer with their outcome.

use std::path::PathBuf;

use entresol_base::ByteSize;
use entresol_media::{FileError, RegionError};

/// Reasons why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Mapping the medium failed.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A file of the medium or of the restart directory could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A quota holds too few segments.
    #[error(
        "the {quota} of tenant '{tenant}' is {given}, too little for {least_segments} segments of \
         {segment}: give it at least {least}, or lower the value limit or the segment size"
    )]
    QuotaTooSmall {
        /// Name of the quota.
        quota: &'static str,
        /// Tenant concerned.
        tenant: String,
        /// Quota that was given.
        given: ByteSize,
        /// Bytes of a segment.
        segment: ByteSize,
        /// Fewest segments that a quota may hold.
        least_segments: u64,
        /// Smallest quota that would do.
        least: ByteSize,
    },
    /// A quota exceeds the memory or medium that there is.
    #[error(
        "the {quota} of tenant '{tenant}' is {given}, more than {limit} has ({available}): lower it"
    )]
    QuotaTooLarge {
        /// Name of the quota.
        quota: &'static str,
        /// Tenant concerned.
        tenant: String,
        /// Quota that was given.
        given: ByteSize,
        /// Name of the resource that limits it.
        limit: &'static str,
        /// Bytes that the resource has.
        available: ByteSize,
    },
    /// The cache cannot hold the largest value.
    #[error(
        "the value limit of tenant '{tenant}' is {given}; it can be at most {most} here, since \
         {because}"
    )]
    ValueTooLarge {
        /// Tenant concerned.
        tenant: String,
        /// Value limit that was given.
        given: ByteSize,
        /// Largest limit that would do.
        most: ByteSize,
        /// Reason for that limit.
        because: String,
    },
    /// The segment size is out of range or not a multiple of a page.
    #[error(
        "the segment size of tenant '{tenant}' is {given}: use a multiple of 4KiB from {least} to \
         {most}"
    )]
    SegmentBytes {
        /// Tenant concerned.
        tenant: String,
        /// Segment size that was given.
        given: ByteSize,
        /// Smallest segment.
        least: ByteSize,
        /// Largest segment.
        most: ByteSize,
    },
    /// The medium cannot hold a cache.
    #[error("medium '{medium}' of tenant '{tenant}' cannot hold a cache: use dram, pmem: or file:")]
    Medium {
        /// Tenant concerned.
        tenant: String,
        /// Medium that was given.
        medium: String,
    },
    /// A cache has one medium, but another number was given.
    #[error("tenant '{tenant}' was given none or several media: give it one")]
    Shares {
        /// Tenant concerned.
        tenant: String,
    },
    /// The restart directory cannot be used.
    #[error(
        "restart directory of tenant '{tenant}': {path}: {cause}; check it and its permissions"
    )]
    RestartDir {
        /// Tenant concerned.
        tenant: String,
        /// The directory, or a file in it.
        path: PathBuf,
        /// Error from the operating system.
        cause: std::io::Error,
    },
    /// The thread that writes segments could not be started.
    #[error("cannot start the writer thread of tenant '{tenant}': {cause}")]
    Thread {
        /// Tenant concerned.
        tenant: String,
        /// Error from the operating system.
        cause: std::io::Error,
    },
}

/// Reasons why a quota cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The quota would hold too few segments.
    #[error("a {quota} of {given} is too little: this cache needs at least {least}")]
    TooSmall {
        /// Name of the quota.
        quota: &'static str,
        /// Quota that was given.
        given: ByteSize,
        /// Smallest quota that would do.
        least: ByteSize,
    },
    /// The medium's file cannot be lengthened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The quota exceeds the memory or medium that there is.
    #[error("a {quota} of {given} is too much: without a restart it can be at most {most}")]
    TooLarge {
        /// Name of the quota.
        quota: &'static str,
        /// Quota that was given.
        given: ByteSize,
        /// Largest quota that is possible without a restart.
        most: ByteSize,
    },
}

/// Reasons why a cache's state could not be saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The file with the saved state could not be written.
    #[error(
        "{path}: {cause}; the cache was not saved, and its next start will find less or nothing"
    )]
    Snapshot {
        /// Path of that file.
        path: PathBuf,
        /// Error from the operating system.
        cause: std::io::Error,
    },
}
