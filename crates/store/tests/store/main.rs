//! Tests of the store from outside that leave their process as it is. A test that limits, measures
//! or kills its process, or takes long, has a binary of its own beside this one.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

mod background;
mod checkpoint;
mod common;
mod completions;
mod copies;
mod cursors;
mod damage;
mod entries;
mod faults;
mod field;
mod images;
mod kvs;
mod labels;
mod prefixes;
mod preloading;
mod reading;
mod salvage;
mod scans;
mod space;
mod statistics;
mod threads;
mod tiering;
mod transactions;
mod volumes;
