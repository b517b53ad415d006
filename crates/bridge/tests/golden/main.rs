//! What the bridge makes of messages, against the official schemas of the five revisions.

mod eras;
mod schemas;
mod tasks;
