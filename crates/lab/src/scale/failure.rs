//! Why a run could not go on. That a bar is missed, or that a job has a flaw, is a result and no failure.

use std::fmt::{self, Display};

/// Why a run could not go on.
#[derive(Debug)]
pub(super) enum ScaleFailure {
    /// A signal came.
    Interrupted(i32),
    /// A sentence for a person.
    Failed(String),
}

impl ScaleFailure {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }

    /// Returns what makes a failure of an error.
    pub(super) fn of<E: Display>(doing: &str) -> impl Fn(E) -> Self {
        move |error| Self::Failed(format!("the run cannot {doing}: {error:#}"))
    }
}

impl Display for ScaleFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(signal) => {
                write!(formatter, "interrupted by signal {signal}; nothing is left running")
            }
            Self::Failed(what) => formatter.write_str(what),
        }
    }
}
