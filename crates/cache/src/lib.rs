//! The segment cache: index, keys and metadata in DRAM, values on any medium.
