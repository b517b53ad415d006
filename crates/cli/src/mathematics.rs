//! The two functions of C's mathematical library to which anything here refers, so that no process has to load that library.
//!
//! The progress bar's estimate raises to a power, and SQLite's full-text search, which nobody uses, takes logarithms. For these two
//! functions every guard, lifeline and supervisor would map `libm.so`. That takes 0.3 MiB each, of the 12 that a guard and its lifeline may
//! have (design 8). The linker takes the functions here in its place.

#![expect(unsafe_code, reason = "only a symbol of this name keeps the library out")]

// SAFETY: the function has the name, the arguments and the result of C's.
#[unsafe(no_mangle)]
extern "C" fn pow(base: f64, exponent: f64) -> f64 {
    libm::pow(base, exponent)
}

// SAFETY: the same as above.
#[unsafe(no_mangle)]
extern "C" fn log(value: f64) -> f64 {
    libm::log(value)
}
