//! Tests with real processes: they need a POSIX shell and the fixture (`fixture/main.rs`), which cargo builds for them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod containment;
mod keep;
mod lifeline;
mod lock;
mod server;
mod survivors;
mod tree;
