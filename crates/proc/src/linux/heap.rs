//! Gives large blocks of memory back to the system as soon as they are free.
//!
//! # Theory of operation
//!
//! The allocator of the GNU C library asks the system for each large block, and gives it back when it is freed. By default it moves the
//! bound with the blocks that it sees. After a block of 30 MiB was freed, blocks of this size come from the heap, and up to 60 MiB of free
//! heap stay with the process. A process that handles one long message and then rests would keep that memory (C-71). With a bound that was
//! set, the allocator moves nothing.
//!
//! Other C libraries have no such setting.

/// Blocks from this size on go back to the system when they are freed, in bytes. To ask the system for a block and to clear its pages
/// costs about a tenth of a millisecond a MiB. So blocks below that size, which usual messages need, stay with the allocator.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: std::ffi::c_int = 1 << 20;

/// Makes the allocator of this process give back each free block of 1 MiB or more, for as long as the process lives.
#[cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the allocator's bound has no safe interface"))]
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and the allocator's own lock. A value that it refuses changes nothing.
    unsafe {
        raw::mallopt(raw::M_MMAP_THRESHOLD, LARGE_BLOCK);
    }
}

#[cfg(target_env = "gnu")]
mod raw {
    use std::ffi::c_int;

    /// See `malloc.h` of the GNU C library.
    pub(super) const M_MMAP_THRESHOLD: c_int = -3;

    #[expect(unsafe_code, reason = "declares a function of the C library")]
    unsafe extern "C" {
        pub(super) fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
}
