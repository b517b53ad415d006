//! Exit codes of `unhang`, part of the public contract (design 4, R-15).
//!
//! Invariants: a code never changes its meaning. A forced exit keeps the outcome's code and never turns a failure into [`DONE`].

/// All requested work was done.
pub const DONE: u8 = 0;
/// The tool, task or job failed.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration.
pub const USAGE: u8 = 2;
/// The server could not be started or reached.
pub const UNREACHABLE: u8 = 3;
/// A deadline passed.
pub const DEADLINE: u8 = 4;
/// The peer broke the protocol.
pub const PROTOCOL: u8 = 5;
/// The server, tool, resource or job does not exist.
pub const NOT_FOUND: u8 = 6;
/// A bug in unhang.
pub const BUG: u8 = 70;
/// SIGINT ended the program.
pub const INTERRUPTED: u8 = 130;
/// SIGTERM ended the program.
pub const TERMINATED: u8 = 143;

/// All codes, each with its meaning for the caller of the command.
pub const MEANINGS: [(u8, &str); 10] = [
    (DONE, "success"),
    (FAILED, "the tool, task or job failed"),
    (USAGE, "wrong usage or configuration"),
    (UNREACHABLE, "the server could not be started or reached, or died"),
    (DEADLINE, "a deadline passed"),
    (PROTOCOL, "the server broke the protocol"),
    (NOT_FOUND, "no such server, tool, resource, prompt, job or state field"),
    (BUG, "a bug in unhang"),
    (INTERRUPTED, "ended by SIGINT"),
    (TERMINATED, "ended by SIGTERM"),
];
