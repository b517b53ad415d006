//! MCP over the network: requests to servers over HTTP, and the answers that they stream back.
//!
//! Invariants
//!
//! - This crate makes no policy: the caller decides on the request, its timeout, and whether it is repeated. Only logins send requests by
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
