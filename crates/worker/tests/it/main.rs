//! Workers as processes of their own, on a real PostgreSQL.
//!
//! These tests need its programs, so they are ignored unless `cargo xtask ci --only examples` runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod artifacts;
mod calls;
mod common;
mod faults;
mod life;
