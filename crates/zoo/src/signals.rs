//! Ignoring and catching signals, for faulty servers that do not end when they are told to.
//!
//! # Invariants
//!
//! - The one handler only stores a number, so it is safe to run at any moment.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Resource, Rlimit, Signal, getpid, setrlimit};
use unhang_demo_servers::signals::restore;

/// The number of the signal that was caught last, 0 for none.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// `SIG_IGN` as the C library encodes it.
const IGNORE: usize = 1;

#[expect(
    unsafe_code,
    reason = "the standard library sets no signal dispositions, and rustix leaves them to the C library"
)]
unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
    fn kill(process: i32, number: i32) -> i32;
}

/// The largest number of a signal, real-time ones included.
const LAST: i32 = 64;

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

/// The same for all that there are; the system keeps SIGKILL and SIGSTOP to itself.
#[expect(unsafe_code, reason = "declared above")]
pub(crate) fn ignore_all() {
    for number in 1..=LAST {
        // SAFETY: as in [`ignore`]; a refusal changes nothing.
        unsafe { signal(number, IGNORE) };
    }
}

/// Sends this process a signal by its number, with the signal's usual effect, and leaves no core behind. Returns from those
/// that do not end it.
#[expect(unsafe_code, reason = "rustix names no real-time signals; the rest is declared above")]
pub(crate) fn meet(number: i32) -> io::Result<()> {
    if !(1..=LAST).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    restore(number);
    // SAFETY: a process may send itself any signal there is.
    unsafe { kill(getpid().as_raw_nonzero().get(), number) };
    Ok(())
}

/// Takes note of SIGINT instead of ending by it; [`was_interrupted`] tells.
pub(crate) fn catch_interrupt() {
    catch(Signal::INT);
}

/// Takes note of all that usually ends a command from outside; [`was_interrupted`] and [`caught`] tell.
pub(crate) fn catch_every_end() {
    [Signal::INT, Signal::TERM, Signal::HUP].into_iter().for_each(catch);
}

#[expect(unsafe_code, reason = "declared above")]
fn catch(caught: Signal) {
    extern "C" fn note(number: i32) {
        CAUGHT.store(number, Ordering::SeqCst);
    }
    // SAFETY: the handler has the signature that `signal` expects, lives as long as the program and only stores an atomic number.
    unsafe { signal(caught.as_raw(), note as extern "C" fn(i32) as usize) };
}

/// Whether a caught signal came.
pub(crate) fn was_interrupted() -> bool {
    caught().is_some()
}

/// The number of the caught signal that came last.
pub(crate) fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::SeqCst)).filter(|number| *number != 0)
}
