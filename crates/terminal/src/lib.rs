//! How the binaries of unhang talk to the person, or the program, that started them. Data goes to stdout, errors and progress to stderr.
//!
//! # Invariants
//!
//! - Text from outside cannot steer a terminal ([`text`]).
//! - stdout carries data and nothing else; a reader that has gone is not an error ([`output`], R-17, R-18).
//! - Every failure has an exit code, a kind for programs and a sentence for people ([`failure`], R-14).

pub mod failure;
pub mod output;
pub mod progress;
pub mod text;
pub mod usage;
