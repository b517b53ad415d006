//! Object stores of both kinds, on real files and on a real server.
//!
//! The tests of a bucket need moto, so they are ignored unless `cargo xtask ci --only examples` runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bucket;
mod folder;
