//! The two functions of C's mathematical library that anything here refers to, so that no process has to load that library.
//!
//! The progress bar's estimate raises to a power, and SQLite's full-text search, which nobody uses, takes logarithms. For these two
//! every guard, lifeline and shim would map `libm.so`: 0.3 MiB each, of the 12 that a guard and its lifeline may have
//! (design 8). The linker takes these in its place.

#![expect(unsafe_code, reason = "only a symbol of this name keeps the library out")]

// SAFETY: the name is C's, and so are the arguments and what is computed.
#[unsafe(no_mangle)]
extern "C" fn pow(base: f64, exponent: f64) -> f64 {
    libm::pow(base, exponent)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn log(value: f64) -> f64 {
    libm::log(value)
}
