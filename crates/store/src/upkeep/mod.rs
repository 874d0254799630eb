//! Background work: flushes, compactions, tiering, and the threads that do it.

pub(crate) mod charging;
pub(crate) mod compaction;
pub(crate) mod context;
pub(crate) mod damaged_segments;
pub(crate) mod dead_segments;
pub(crate) mod file_copy;
pub(crate) mod file_move;
pub(crate) mod flush;
pub(crate) mod image_writer;
pub(crate) mod preload;
pub(crate) mod read_frequency;
pub(crate) mod space;
pub(crate) mod squeeze;
pub(crate) mod tiering;
pub(crate) mod worth;
