//! Switches that take a guard out, so that the test which claims to need it can be seen to fail.
//!
//! A guard is a place in the code that keeps one of the promises. It asks [`stands`] for its own name:
//!
//! ```
//! # let (length, limit) = (1, 2);
//! if unhang_switches::stands("max-message") && length > limit {
//!     // refuse
//! }
//! ```
//!
//! In a normal build the answer is the constant `true`, which the compiler folds away. In the fault build (feature
//! `faults`) it is `false` for the names in the variable `UNHANG_GUARDS_OFF`, separated by commas. `cargo xtask faults`
//! goes through all guards; `docs/reference/guards.md` is their list.
//!
//! Invariants
//!
//! - The fault build cannot be optimised, so it can be no release.
//! - Without the feature there is no state, no environment and no branch.

use std::ffi::OsString;

#[cfg(all(feature = "faults", not(debug_assertions)))]
compile_error!("the feature `faults` can take guards out and is for tests alone: build without --release");

/// Whether the guard of this name is in force: always, but for a fault build that was told otherwise.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn stands(_guard: &'static str) -> bool {
    true
}

/// Whether the guard of this name is in force: always, but for a fault build that was told otherwise.
#[cfg(feature = "faults")]
pub fn stands(guard: &'static str) -> bool {
    use std::sync::OnceLock;

    static OFF: OnceLock<String> = OnceLock::new();
    let off = OFF.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default());
    off.split(',').all(|name| name != guard)
}

/// What one of our own programs needs in its environment to leave out the same guards, where it inherits nothing: nothing.
#[cfg(not(feature = "faults"))]
pub const fn handed_on() -> Vec<(OsString, OsString)> {
    Vec::new()
}

/// What one of our own programs needs in its environment to leave out the same guards, where it inherits nothing.
#[cfg(feature = "faults")]
pub fn handed_on() -> Vec<(OsString, OsString)> {
    std::env::var_os(VARIABLE).map(|off| (VARIABLE.into(), off)).into_iter().collect()
}

#[cfg(feature = "faults")]
const VARIABLE: &str = "UNHANG_GUARDS_OFF";
