//! Gives back the memory of code that only a program's start needed.
//!
//! # Theory of operation
//!
//! The kernel maps code in blocks of sixteen pages around each page that is executed, and keeps them mapped. Some programs parse arguments,
//! set up a runtime and then do one small thing for hours. Most of the code that such a program has mapped is its start. [`give_back_code`]
//! lets go of all of it. Pages that are needed again come back from the page cache, without a look at the disk. The same is true of the
//! program's constants, which stand at the beginning of its file.
//!
//! Invariants: only mappings of files are let go into which nothing was ever written, so the kernel can read their pages again. The
//! relocated part of the data was written to at the start and is read-only now. It is not at the beginning of a file.

use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Lets go of the code that is mapped so far. The call costs some microseconds now, and as many for each block that is executed again.
pub fn give_back_code() {
    give_back_mappings(&code_mappings());
}

/// Reads where the code of this process is mapped. That needs code of its own, so a process that is to stay small has it done before it is
/// copied. The mappings are those of each copy, too.
pub(crate) fn code_mappings() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(code).collect()
}

/// Lets go of `mappings`, which come from [`code_mappings`]. See [`give_back_code`].
#[expect(unsafe_code, reason = "memory that is given back has no safe interface")]
pub(crate) fn give_back_mappings(mappings: &[Range<usize>]) {
    for range in mappings {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the range is code of a file, or the beginning of one, mapped for reading alone. Its pages are those of the file and are
        // read again from there when they are needed; nobody can have written into them. Nothing is unmapped meanwhile. If the kernel
        // refuses, the memory stays as it was.
        let _stays = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
    }
}

/// Parses the addresses of a line of the map, if it is code of a file or the beginning of one; otherwise returns `None`.
fn code(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (addresses, access) = (fields.next()?, fields.next()?);
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    // The device comes before the inode; a mapping that is not of a file has inode 0.
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    let (start, end) = addresses.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let is_unwritten = access == "r-xp" || access == "r--p" && offset == 0;
    (is_unwritten && inode != 0).then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_given_back() {
        for (line, expect) in [
            ("55d0-55e0 r-xp 00002000 fe:00 1234 /usr/bin/x", Some(0x55d0..0x55e0)),
            ("55d0-55e0 r--p 00000000 fe:00 1234 /usr/bin/x", Some(0x55d0..0x55e0)),
            ("55d0-55e0 r--p 00002000 fe:00 1234 /usr/bin/x", None),
            ("55d0-55e0 rw-p 00002000 fe:00 1234 /usr/bin/x", None),
            ("55d0-55e0 rwxp 00002000 fe:00 1234 /usr/bin/x", None),
            ("7ffd-7ffe r-xp 00000000 00:00 0 [vdso]", None),
            ("", None),
        ] {
            assert_eq!(code(line), expect, "{line}");
        }
    }

    #[test]
    fn the_program_goes_on() {
        give_back_code();
        assert_eq!(code("1-2 r-xp 0 0:0 1"), Some(1..2));
    }
}
