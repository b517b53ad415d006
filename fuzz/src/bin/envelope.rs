//! The fuzz target `envelope`; see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unhang_fuzz::envelope(bytes));
