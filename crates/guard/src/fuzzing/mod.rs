//! A guard's life as bytes tell it, with the promises as invariants: what the property test and the fuzz target run.
//!
//! Theory of operation. `script` turns any bytes into events. `life` lets them happen to a real [`WrapSession`] between
//! two real queues, in the order in which the shell would see them, with a clock that is only a number. `client` and
//! `server` keep, from the lines alone, what each side is owed; they panic when a promise is broken. `docs/reference/
//! fuzzing.md` lists what is checked.
//!
//! `bridge` stands for whoever keeps jobs and answers about them.
//!
//! Invariants: compiled for tests and under the feature `fuzzing` only; the same bytes give the same life; what is judged
//! is what crosses the session's edge, and its fields are looked into for their size alone, or to learn which of two
//! allowed things it chose.
//!
//! [`WrapSession`]: super::wrap_session::WrapSession

mod client;
mod job_bridge;
mod life;
mod script;
mod server;
mod speech;
mod test_world;

pub use script::FuzzScript;

impl FuzzScript {
    /// Lives it, to its end.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn live(&self) {
        life::SessionSimulation::new(self).live(self);
    }
}
