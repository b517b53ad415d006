//! A cluster on one machine: machines with network, mounts and processes of their own, a database, clocks that can be set, and an observer
//! that sees all of it from outside. `unhang-lab scale` runs jobs there and breaks things.
//!
//! # Theory of operation
//!
//! This process enters a network namespace of its own, and has the switch of the cluster there. Each machine has a holder process
//! with a network and a mount namespace, and a life: the first process of a process namespace, whose end is the end of all
//! processes of the machine. A cable is a pair of virtual interfaces. Nothing of it has a name outside of this process.
//!
//! # Invariants
//!
//! - Nothing outlives this process, however it ends: the kernel kills holders and lives with the threads that started them, and a
//!   namespace goes with its last process. Only the folder stays then, and the next run removes it.
//! - Nothing of the machine's own network changes.
//! - The observer judges by what the kernel says. It uses nothing of the programs that it observes.

mod clock;
mod database;
mod machine;
mod observer;
mod place;
mod switch;

pub use clock::{ClockLibrary, SteppedClock};
pub use database::ScaleDatabase;
pub use machine::{MachineProgram, MachineUser, ScaleMachine};
pub use observer::{TOKEN_VARIABLE, WorkAttempt, WorkObserver, uptime};
pub use place::ScalePlace;
pub use switch::ScaleSwitch;

use crate::signals;

/// Takes note of the signals that end a command from outside, instead of ending by them. [`interrupted_by`] tells.
pub fn catch_every_end() {
    signals::catch_every_end();
}

/// Returns the number of the signal that came last, if one did.
#[must_use]
pub fn interrupted_by() -> Option<i32> {
    signals::caught()
}

/// Does nothing for a moment, between two looks at something that tells nobody of its changes.
pub fn rest(length: std::time::Duration) {
    unhang_demo_servers::bounded_waits::pause(length);
}
