//! A request of another process, whose server goes on under us.

use std::time::Duration;

use unhang_wire::Id;

/// A request that another process has sent.
#[derive(Clone, Debug)]
pub struct ResumedRequest {
    /// The id under which it was sent.
    pub id: Id,
    /// Its progress token, if it has one.
    pub token: Option<Id>,
    /// Its method.
    pub method: Box<str>,
    /// The time for which the server has worked on it.
    pub elapsed: Duration,
    /// The time that it may take in all.
    pub limit: Duration,
}
