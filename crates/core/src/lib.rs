//! The base of every other layer of unhang: limits, errors, and the pure policy of queues, breakers, fairness and clocks.
//!
//! Invariants
//!
//! - Nothing here knows a server, a session or a job. All but [`shell`] and [`telemetry`] are pure: times and lines are handed in.
//! - [`config`] holds every number that bounds something and imports no other module here. [`limits`] holds those of one server.
//! - [`fault`] holds the form of every error.

pub mod batch;
pub mod breaker;
pub mod clients;
pub mod config;
pub mod digest;
pub mod error;
pub mod exit;
pub mod fair;
pub mod fault;
pub mod health;
pub mod heartbeat;
pub mod insertion;
pub mod junk;
pub mod limits;
pub mod list;
pub mod notices;
pub mod promotion;
pub mod queue;
pub mod refusal;
pub mod revision;
pub mod secrets;
pub mod session;
pub mod shell;
pub mod telemetry;
pub mod units;
pub mod wording;
