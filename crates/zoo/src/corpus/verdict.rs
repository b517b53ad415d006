//! What comes of a case.

use std::io;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseVerdict {
    /// The client saw what the promise says.
    Kept,
    /// It did not, and this in a few words is what it saw.
    Broken(String),
    /// The case itself could not be carried out, so it says nothing.
    FailedToRun(String),
}

/// Why a case is over before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The promise is broken.
    Broken(String),
    /// The case cannot go on, through no fault of what is tested.
    Failed(String),
}

/// Either all is well or the case is over.
pub(crate) type Judged<T = ()> = Result<T, Flaw>;

impl From<io::Error> for Flaw {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Judged> for CaseVerdict {
    fn from(judged: Judged) -> Self {
        match judged {
            Ok(()) => Self::Kept,
            Err(Flaw::Broken(reason)) => Self::Broken(reason),
            Err(Flaw::Failed(reason)) => Self::FailedToRun(reason),
        }
    }
}

/// The promise is broken, for this reason.
pub(crate) fn broken<T>(reason: impl Into<String>) -> Judged<T> {
    Err(Flaw::Broken(reason.into()))
}

/// The promise is broken unless this holds.
pub(crate) fn demand(holds: bool, reason: impl FnOnce() -> String) -> Judged {
    if holds { Ok(()) } else { broken(reason()) }
}
