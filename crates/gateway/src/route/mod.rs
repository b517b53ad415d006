//! Routing: the public names of what several servers offer, and the items that clients may have.
//!
//! Invariants
//!
//! - Pure, and the same for the same servers in the same order, whatever came when: a name that a client has learnt means the same thing
//!   tomorrow.
//! - A public name stands for one thing of one server. It is looked up whole, and never taken apart.

pub mod apps;
pub mod catalog;
pub mod extensions;
mod links;
pub mod names;
pub mod rules;
mod skills;
mod template;
mod tool_headers;
pub mod uris;
