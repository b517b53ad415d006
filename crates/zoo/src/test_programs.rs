//! The programs that tests need besides Rust. `cargo xtask ci --only examples` installs them, and names each by a variable.
//!
//! Invariant: a missing program fails a test. No test is left out in silence.

use std::path::PathBuf;

/// The variable with the folder of PostgreSQL's programs.
pub const POSTGRES: &str = "UNHANG_TEST_POSTGRES";
/// The variable with the program PgBouncer.
pub const PGBOUNCER: &str = "UNHANG_TEST_PGBOUNCER";
/// The variable with the program `moto_server`.
pub const MOTO: &str = "UNHANG_TEST_MOTO";

/// Returns the path that a variable names.
///
/// # Panics
/// Panics if the variable is not set.
#[must_use]
pub fn named_by(variable: &str) -> PathBuf {
    let told = std::env::var_os(variable);
    told.unwrap_or_else(|| panic!("{variable} has to be set: run `cargo xtask ci --only examples`")).into()
}
