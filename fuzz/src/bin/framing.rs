//! The fuzz target `framing`; see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unhang_fuzz::framing(bytes));
