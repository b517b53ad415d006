//! MCP over the network: requests to servers over HTTP, and what they stream back.
//!
//! Invariants
//!
//! - No policy: what is asked, for how long it is waited for, and whether it is asked again is up to whoever asks. Logins alone ask by
//!   themselves, within limits that are handed in.
//! - Memory is bounded by the limits that are handed in, whatever a server sends.
//! - TLS is rustls with the system's certificates; nothing turns their verification off.

mod connection_shares;
pub mod http;
pub mod oauth;
pub mod serve;
mod silent_connections;
pub mod sse;
pub mod tls;
mod write_deadline;
