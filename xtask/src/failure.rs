//! Why a chore failed, in a form that a person can act on.

use std::fmt;
use std::path::PathBuf;

/// A sentence, and the file with the rest of the story where there is one.
#[derive(Debug)]
pub(crate) struct ChoreFailure {
    what: String,
    output: Option<PathBuf>,
    usage: bool,
}

impl ChoreFailure {
    /// Something went wrong and `what` says all of it.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), output: None, usage: false }
    }

    /// Reading, writing or starting `what` failed.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(format!("{what}: {error}"))
    }

    /// The command line was wrong.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { usage: true, ..Self::new(what) }
    }

    /// Adds the file that holds what the failing program printed.
    pub(crate) fn with_output(mut self, output: impl Into<PathBuf>) -> Self {
        self.output = Some(output.into());
        self
    }

    pub(crate) fn output(&self) -> Option<&PathBuf> {
        self.output.as_ref()
    }

    pub(crate) fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for ChoreFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}
