//! Media: regions of byte-addressable memory, block files, cost tables and accounts.
