//! Clocks that can be set, for programs that run under libfaketime.
//!
//! # Invariant
//!
//! - Only the clock that people read is set. The clocks that count from boot go on as they do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

/// The library that comes between a program and its clock.
#[derive(Clone, Debug)]
pub struct ClockLibrary(pub PathBuf);

/// The clock of a machine.
#[derive(Debug)]
pub struct SteppedClock {
    library: ClockLibrary,
    control: PathBuf,
    offset: AtomicI64,
}

impl SteppedClock {
    /// Makes a clock that is right, with its control file here.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn make(library: ClockLibrary, control: &Path) -> io::Result<Self> {
        let clock = Self { library, control: control.to_owned(), offset: AtomicI64::new(0) };
        clock.write()?;
        Ok(clock)
    }

    /// Sets the clock so many seconds forward, or back. Programs see it within a second.
    ///
    /// # Errors
    /// Fails if the control file cannot be written.
    pub fn step(&self, seconds: i64) -> io::Result<()> {
        self.offset.fetch_add(seconds, Ordering::Relaxed);
        self.write()
    }

    /// Returns by how many seconds the clock is wrong.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn write(&self) -> io::Result<()> {
        // A half-written file is never read.
        let new = self.control.with_extension("new");
        fs::write(&new, format!("{:+}\n", self.offset()))?;
        fs::rename(new, &self.control)
    }

    /// Returns the variables of programs that have this clock.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.0.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.control.display().to_string()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
