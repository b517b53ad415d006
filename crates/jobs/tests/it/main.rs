//! Tests with real processes: they need a POSIX shell and the fixture (`fixture/main.rs`), which cargo builds for them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod common;
mod containers;
mod crashes;
mod damage;
mod everywhere;
mod folder;
mod keepers;
mod kills;
mod layout;
mod life;
mod logs;
mod replaced;
mod resting;
mod submitted;
mod survivors;
mod sweeps;
mod tickets;
mod unstorable_ends;
mod versions;
mod watched;
mod work_leases;
