//! Indexes of the papers, for reproductions and to compare with: keys of eight bytes.

pub(crate) mod fast_fair;
pub(crate) mod fp_tree;
pub(crate) mod ods;
pub mod published;
pub(crate) mod skip_list;
pub(crate) mod sorted;
pub(crate) mod wb_tree;
