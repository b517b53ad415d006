//! The usual effect of a signal, for a server that ends by one.

/// `SIG_DFL` as the C library encodes it.
const DEFAULT: usize = 0;

#[expect(
    unsafe_code,
    reason = "the standard library sets no signal dispositions, and rustix leaves them to the C library"
)]
unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

/// Gives a signal its usual effect again, also where the Rust runtime has a handler of its own (SIGSEGV, SIGBUS).
#[expect(unsafe_code, reason = "declared above")]
pub fn restore(number: i32) {
    // SAFETY: `signal` takes any number and disposition; the default installs no code that could run.
    unsafe { signal(number, DEFAULT) };
}
