//! MCP over the network: requests to servers over HTTP, and what they stream back.
//!
//! Invariants
//!
//! - No policy: nothing here knows what a deadline, a retry or a revision is for; whoever asks says it.
//! - Memory is bounded by the limits that are handed in, whatever a server sends.
//! - TLS is rustls with the system's certificates; nothing turns their verification off.

pub mod oauth;
pub mod tls;
