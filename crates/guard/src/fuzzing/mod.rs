//! A guard's life as bytes tell it, with the promises as invariants. The property test and the fuzz target run it.
//!
//! Theory of operation. `script` turns any bytes into events. `life` lets them happen to a real [`WrapSession`] between two real queues, in
//! the order in which the shell would see them. Its clock is only a number. `client` and `server` keep what each side is owed, from the
//! lines alone, and panic when a promise is broken. `docs/reference/fuzzing.md` lists the checks.
//!
//! `job_bridge` stands for the job bridge, which keeps jobs and answers about them.
//!
//! Invariants: this is compiled for tests and under the feature `fuzzing` only. The same bytes give the same life. Only the session's edge
//! is judged. Its fields are read only for their size, or to learn which of two allowed ways it chose.
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
    /// Runs the whole life.
    ///
    /// # Panics
    /// Panics when a promise is broken.
    pub fn live(&self) {
        life::SessionSimulation::new(self).live(self);
    }
}
