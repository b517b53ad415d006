//! Ignoring and catching signals, for animals that do not end when they are told to.
//!
//! # Invariants
//!
//! - The one handler only stores a flag, so it is safe to run at any moment.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// `SIG_DFL` as the C library encodes it.
const DEFAULT: usize = 0;
/// `SIG_IGN` as the C library encodes it.
const IGNORE: usize = 1;

#[expect(
    unsafe_code,
    reason = "the standard library sets no signal dispositions, and rustix leaves them to the C library"
)]
unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

/// Makes this process, and all that it starts, ignore a signal.
#[expect(unsafe_code, reason = "declared above")]
pub(crate) fn ignore(ignored: Signal) {
    // SAFETY: `signal` takes any number and disposition; ignoring installs no code that could run.
    unsafe { signal(ignored.as_raw(), IGNORE) };
}

/// The same for every signal that asks a process to end.
pub(crate) fn ignore_the_polite_ones() {
    [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT].into_iter().for_each(ignore);
}

/// Gives a signal its usual effect again, also where the Rust runtime has a handler of its own (SIGSEGV, SIGBUS).
#[expect(unsafe_code, reason = "declared above")]
pub(crate) fn restore(restored: Signal) {
    // SAFETY: `signal` takes any number and disposition; the default installs no code that could run.
    unsafe { signal(restored.as_raw(), DEFAULT) };
}

/// Takes note of SIGINT instead of ending by it; [`was_interrupted`] tells.
#[expect(unsafe_code, reason = "declared above")]
pub(crate) fn catch_interrupt() {
    extern "C" fn note(_number: i32) {
        INTERRUPTED.store(true, Ordering::SeqCst);
    }
    // SAFETY: the handler has the signature that `signal` expects, lives as long as the program and only stores an atomic flag.
    unsafe { signal(Signal::INT.as_raw(), note as extern "C" fn(i32) as usize) };
}

/// Whether SIGINT came since [`catch_interrupt`].
pub(crate) fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
