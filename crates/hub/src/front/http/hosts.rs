//! Under which names we may be asked. Pure.
//!
//! A page in a browser can have its own name lead to this machine, and then ask whatever listens here (DNS rebinding). What gives it
//! away is the name: it stands in `Host`, and where the page is from stands in `Origin`.
//!
//! Invariants: who cannot be told apart from such a page is refused.

use std::net::IpAddr;

use unhang_net::http::Url;

/// The names of this machine for itself.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The names under which we may be asked.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    own: Vec<String>,
}

impl Hosts {
    /// Those of this machine for itself, and these.
    #[must_use]
    pub fn new(own: impl IntoIterator<Item = String>) -> Hosts {
        Hosts { own: own.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request with these headers may be answered.
    pub(super) fn allow(&self, host: Option<&str>, origin: Option<&str>) -> bool {
        host.is_some_and(|host| self.has(&without_port(host)))
            && origin.is_none_or(|origin| {
                let url = Url::parse(origin).ok();
                url.as_ref().and_then(Url::host_str).is_some_and(|host| self.has(&host.to_ascii_lowercase()))
            })
    }

    fn has(&self, name: &str) -> bool {
        LOCAL.contains(&name) || self.own.iter().any(|own| own == name)
    }
}

fn without_port(host: &str) -> String {
    let end = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && is_whole(name) => name.len(),
        _ => host.len(),
    };
    host[..end].to_ascii_lowercase()
}

/// No half of an address without brackets.
fn is_whole(name: &str) -> bool {
    !name.contains(':') || name.ends_with(']')
}

/// An address as it stands in a URL.
#[must_use]
pub fn name_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_answered_to() {
        let hosts = Hosts::new(["MCP.example.org".to_owned()]);
        for host in ["localhost", "LOCALHOST:8", "127.0.0.1:65000", "[::1]:1", "[::1]", "mcp.Example.org:443"]
        {
            assert!(hosts.allow(Some(host), None), "{host}");
            assert!(hosts.allow(Some(host), Some("http://localhost:3000")), "{host}");
            assert!(!hosts.allow(Some(host), Some("https://evil.example.com")), "{host}");
        }
        for host in
            ["evil.example.com", "localhost.evil.com:80", "127.0.0.1.nip.io", "::1", "", "[::1", "0.0.0.0"]
        {
            assert!(!hosts.allow(Some(host), None), "{host}");
        }
        assert!(!hosts.allow(None, None), "nobody says whom they ask");
        for origin in
            ["null", "", "localhost", "file:///etc", "http://[::1]:x", "https://mcp.example.org.evil.com"]
        {
            assert!(!hosts.allow(Some("localhost"), Some(origin)), "{origin}");
        }
        for origin in ["https://mcp.example.org", "http://[::1]:6274", "http://127.0.0.1"] {
            assert!(hosts.allow(Some("localhost"), Some(origin)), "{origin}");
        }
    }
}
