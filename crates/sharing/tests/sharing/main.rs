//! Tests of the controller from outside: scripted devices in virtual time.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

mod adversaries;
mod common;
mod fair;
mod groups;
mod limits;
mod properties;
mod proportional;
mod qos;
