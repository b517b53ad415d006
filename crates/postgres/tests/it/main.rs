//! The store on a real PostgreSQL.
//!
//! These tests need its programs, so they are ignored unless `cargo xtask ci --only examples` runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod artifacts;
mod documents;
mod faults;
mod hints;
mod leases;
mod pooled;
mod server;
mod suite;
