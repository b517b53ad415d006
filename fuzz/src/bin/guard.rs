//! The fuzz target `guard`; see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unhang_fuzz::guard(bytes));
