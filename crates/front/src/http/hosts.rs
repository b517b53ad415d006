//! The names under which unhang may be asked. Pure.
//!
//! A page in a browser can make its own name lead to this machine, and then ask any server that listens here (DNS rebinding). Two headers
//! reveal this: `Host` holds the name, and `Origin` holds the page's origin.
//!
//! Another server on this machine has pages too, and their scripts ask from this machine. The port tells its pages from unhang's.
//!
//! Invariants: a request that cannot be told apart from one of such a page is refused. No page can make an IP address lead elsewhere, so
//! the address at which a connection arrived is always an allowed name. A page may ask if it was loaded from the very scheme, host and port
//! that it asks, or if its origin is listed. An origin on this machine proves nothing. If unhang speaks plain HTTP, a page of a listed name
//! may also be loaded by https. A proxy of that name may speak TLS for unhang.

use std::net::IpAddr;

use unhang_net::{
    http::Url,
    serve::axum::http::{HeaderMap, Uri, header, uri::Authority},
};

/// The names of this machine for itself.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The names under which unhang may be asked.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    own: Vec<String>,
    origins: Vec<String>,
}

impl AllowedHosts {
    /// Allows the names of this machine for itself, and these names.
    #[must_use]
    pub fn new(own: impl IntoIterator<Item = String>) -> AllowedHosts {
        AllowedHosts {
            own: own.into_iter().map(|name| name.to_ascii_lowercase()).collect(),
            origins: Vec::new(),
        }
    }

    /// Allows pages of these origins, too, which are in the form of [`origin_of`].
    #[must_use]
    pub fn with_origins(self, origins: impl IntoIterator<Item = String>) -> AllowedHosts {
        AllowedHosts { origins: origins.into_iter().collect(), ..self }
    }

    /// Returns whether a request with these headers may be answered.
    pub(super) fn allow(&self, asked: &RequestOrigins<'_>) -> bool {
        asked.host.is_some_and(|host| self.has(&without_port(host), asked.arrived))
            && asked.page.is_none_or(|page| self.may_ask(page, asked))
    }

    fn may_ask(&self, page: &str, asked: &RequestOrigins<'_>) -> bool {
        let Ok(page) = Url::parse(page) else { return false };
        self.is_of(&page, asked) || self.origins.contains(&page.origin().ascii_serialization())
    }

    /// Returns whether a page has the scheme, host and port that it asks.
    fn is_of(&self, page: &Url, asked: &RequestOrigins<'_>) -> bool {
        let host = asked.host.unwrap_or_default();
        let is_by = match page.scheme() {
            "https" => asked.is_by_tls || self.may_have_a_proxy(&without_port(host)),
            "http" => !asked.is_by_tls,
            _ => false,
        };
        is_by
            && Url::parse(&format!("{}://{host}", page.scheme())).is_ok_and(|asked| {
                asked.host_str() == page.host_str()
                    && asked.port_or_known_default() == page.port_or_known_default()
            })
    }

    /// Returns whether a proxy that speaks TLS may use this name for unhang: the name is listed, and it is not an address.
    fn may_have_a_proxy(&self, name: &str) -> bool {
        self.own.iter().any(|own| own == name) && address_in(name).is_none()
    }

    fn has(&self, name: &str, arrived: Option<IpAddr>) -> bool {
        LOCAL.contains(&name)
            || self.own.iter().any(|own| own == name)
            || arrived.is_some_and(|arrived| address_in(name) == Some(arrived.to_canonical()))
    }
}

/// The headers of a request that tell its target and its source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestOrigins<'a> {
    /// The host that it asks, with the port.
    pub(super) host: Option<&'a str>,
    /// The origin of the page that asks, if a page does.
    pub(super) page: Option<&'a str>,
    /// The own address at which the request arrived.
    pub(super) arrived: Option<IpAddr>,
    /// Whether it came by TLS that unhang itself speaks.
    pub(super) is_by_tls: bool,
}

/// Returns the host that a request asks. An absolute target decides, whatever `Host` says (RFC 9112, 3.2.2).
pub(super) fn asked_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, SeveralHosts> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(SeveralHosts);
    }
    let target = uri.authority().map(Authority::as_str);
    Ok(target.or_else(|| first.and_then(|host| host.to_str().ok())))
}

/// The request has more than one `Host`, and nothing tells which of them counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeveralHosts;

/// Returns the name of a host in the form of requests: in lower case, and IPv6 in brackets. Returns `None` if the text is more or less than
/// a host.
#[must_use]
pub fn host_of(text: &str) -> Option<String> {
    let is_plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    (is_plain(text) || address_in(text).is_some()).then(|| text.to_ascii_lowercase())
}

/// Returns the origin of a page in the form of browsers: scheme, host, and the port unless it is the default. Returns `None` if the text is
/// not the origin of a page on the network, or says more than that.
#[must_use]
pub fn origin_of(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    (is_bare && matches!(url.scheme(), "http" | "https")).then(|| url.origin().ascii_serialization())
}

/// Returns the IP address that a host name spells. Returns `None` if the name is not an address.
fn address_in(name: &str) -> Option<IpAddr> {
    let inside = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match inside {
        Some(inside) => inside.parse().map(IpAddr::V6).ok(),
        None => name.parse().map(IpAddr::V4).ok(),
    }
    .map(|address| address.to_canonical())
}

fn without_port(host: &str) -> String {
    let end = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && is_whole(name) => name.len(),
        _ => host.len(),
    };
    host[..end].to_ascii_lowercase()
}

/// Returns whether a name is whole: not a part of an IPv6 address without brackets.
fn is_whole(name: &str) -> bool {
    !name.contains(':') || name.ends_with(']')
}

/// Returns an address in the form of URLs.
#[must_use]
pub fn name_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use unhang_net::serve::axum::http::HeaderValue;

    use super::*;

    fn allows(hosts: &AllowedHosts, host: Option<&str>, page: Option<&str>) -> bool {
        hosts.allow(&RequestOrigins { host, page, ..RequestOrigins::default() })
    }

    #[test]
    fn only_our_own_names_are_answered_to() {
        let hosts = AllowedHosts::new(["MCP.example.org".to_owned()]);
        let hosts = hosts.with_origins(["https://app.example.org".to_owned()]);
        for host in ["localhost", "LOCALHOST:8", "127.0.0.1:65000", "[::1]:1", "[::1]", "mcp.Example.org:443"]
        {
            assert!(allows(&hosts, Some(host), None), "{host}");
            assert!(allows(&hosts, Some(host), Some("https://app.example.org")), "{host}");
            assert!(!allows(&hosts, Some(host), Some("http://localhost:3000")), "{host}");
            assert!(!allows(&hosts, Some(host), Some("https://evil.example.com")), "{host}");
        }
        for host in
            ["evil.example.com", "localhost.evil.com:80", "127.0.0.1.nip.io", "::1", "", "[::1", "0.0.0.0"]
        {
            assert!(!allows(&hosts, Some(host), None), "{host}");
        }
        assert!(!allows(&hosts, None, None), "nobody says whom they ask");
        for origin in [
            "null",
            "",
            "localhost",
            "file:///etc",
            "http://[::1]:x",
            "https://mcp.example.org.evil.com",
            "http://app.example.org",
            "https://app.example.org:8443",
            "https://app.example.org.evil.com",
        ] {
            assert!(!allows(&hosts, Some("localhost"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn f_25_a_page_asks_the_host_and_port_that_it_is_from() {
        let hosts = AllowedHosts::new(["mcp.example.org".to_owned(), "192.0.2.1".to_owned()]);
        for (host, origin, may) in [
            ("localhost:8808", "http://localhost:8808", true),
            ("LOCALHOST:8808", "http://localhost:8808", true),
            ("localhost:8808", "http://localhost:3000", false),
            ("localhost:8808", "http://localhost", false),
            ("localhost:8808", "http://127.0.0.1:8808", false),
            ("127.0.0.1:8808", "http://127.0.0.1:8808", true),
            ("[::1]:8808", "http://[::1]:8808", true),
            ("[::1]:8808", "http://[::1]:6274", false),
            ("localhost", "http://localhost", true),
            ("localhost", "http://localhost:80", true),
            // One port has one scheme, and ours has no TLS.
            ("localhost:8808", "https://localhost:8808", false),
            ("127.0.0.1:8808", "https://127.0.0.1:8808", false),
            ("192.0.2.1:8808", "https://192.0.2.1:8808", false),
            ("localhost", "https://localhost", false),
            // Behind a proxy that speaks TLS for us.
            ("mcp.example.org", "https://mcp.example.org", true),
            ("mcp.example.org:443", "https://mcp.example.org", true),
            ("mcp.example.org", "https://mcp.example.org:8443", false),
            ("localhost:8808", "https://mcp.example.org", false),
            ("localhost:8808", "file://localhost:8808", false),
            ("localhost:8808", "null", false),
        ] {
            assert_eq!(allows(&hosts, Some(host), Some(origin)), may, "{host} {origin}");
        }
    }

    #[test]
    fn f_25_where_tls_is_spoken_a_page_is_of_https() {
        let hosts = AllowedHosts::new(["mcp.example.org".to_owned()]);
        for (host, page, may) in [
            ("localhost:8808", "https://localhost:8808", true),
            ("localhost:8808", "http://localhost:8808", false),
            ("mcp.example.org:80", "http://mcp.example.org", false),
            ("mcp.example.org", "https://mcp.example.org", true),
        ] {
            let asked = RequestOrigins {
                host: Some(host),
                page: Some(page),
                is_by_tls: true,
                ..RequestOrigins::default()
            };
            assert_eq!(hosts.allow(&asked), may, "{host} {page}");
        }
        let listed = hosts.with_origins(["https://localhost:8808".to_owned()]);
        assert!(allows(&listed, Some("localhost:8808"), Some("https://localhost:8808")), "it is listed");
    }

    #[test]
    fn the_host_of_the_target_counts_and_there_is_one_host_alone() {
        let headers = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            headers
        };
        for (target, hosts, expect) in [
            ("/mcp", &["localhost"][..], Ok(Some("localhost"))),
            ("/mcp", &[], Ok(None)),
            ("/mcp", &["localhost", "evil.example.com"], Err(SeveralHosts)),
            ("/mcp", &["localhost", "localhost"], Err(SeveralHosts)),
            ("http://evil.example.com:1/mcp", &["localhost"], Ok(Some("evil.example.com:1"))),
            ("http://localhost/mcp", &["evil.example.com"], Ok(Some("localhost"))),
            ("http://localhost@evil.example.com/", &["localhost"], Ok(Some("localhost@evil.example.com"))),
            ("http://localhost/mcp", &["localhost", "localhost"], Err(SeveralHosts)),
        ] {
            let uri: Uri = target.parse().expect("a target");
            assert_eq!(asked_host(&uri, &headers(hosts)), expect, "{target} {hosts:?}");
        }
        let asked = Some("localhost@evil.example.com");
        assert!(!allows(&AllowedHosts::default(), asked, None), "nobody's name has a user");
    }

    #[test]
    fn the_address_that_was_come_to_is_a_name_of_ours() {
        let hosts = AllowedHosts::default();
        for (host, arrived, is_ours) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1:8808", "192.0.2.1", true),
            ("192.0.2.1:8808", "::ffff:192.0.2.1", true),
            ("[2001:db8::1]:8808", "2001:db8::1", true),
            ("[2001:DB8:0::1]", "2001:db8::1", true),
            ("192.0.2.2", "192.0.2.1", false),
            ("0.0.0.0", "192.0.2.1", false),
            ("2001:db8::1", "2001:db8::1", false),
            ("192.0.2.1.nip.io", "192.0.2.1", false),
            ("evil.example.com", "192.0.2.1", false),
        ] {
            let arrived = Some(arrived.parse().expect("an address"));
            let asked = RequestOrigins { host: Some(host), arrived, ..RequestOrigins::default() };
            assert_eq!(hosts.allow(&asked), is_ours, "{host}");
        }
    }

    #[test]
    fn an_origin_is_as_browsers_tell_it() {
        for (text, expect) in [
            ("https://app.example.org", Some("https://app.example.org")),
            ("HTTPS://App.Example.org:443/", Some("https://app.example.org")),
            ("http://app.example.org:3000", Some("http://app.example.org:3000")),
            ("https://app.example.org/path", None),
            ("https://app.example.org?x", None),
            ("https://me@app.example.org", None),
            ("app.example.org", None),
            ("file:///app", None),
            ("*", None),
        ] {
            assert_eq!(origin_of(text).as_deref(), expect, "{text}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_in_the_form_of_requests() {
        for (text, expect) in [
            ("mcp.example.org", Some("mcp.example.org")),
            ("MCP.Example.ORG", Some("mcp.example.org")),
            ("my_host-1", Some("my_host-1")),
            ("localhost", Some("localhost")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("[::1]", Some("[::1]")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
            ("", None),
            ("::1", None),
            ("[::1", None),
            ("[192.0.2.1]", None),
            ("localhost:8808", None),
            ("[::1]:8808", None),
            ("https://mcp.example.org", None),
            ("mcp.example.org/mcp", None),
            ("me@mcp.example.org", None),
            ("a b", None),
            ("*", None),
            ("m\u{fc}nchen.example", None),
        ] {
            assert_eq!(host_of(text).as_deref(), expect, "{text}");
        }
        for (address, expect) in
            [("192.0.2.1", "192.0.2.1"), ("::1", "[::1]"), ("2001:db8::1", "[2001:db8::1]")]
        {
            let name = name_of(address.parse().expect("an address"));
            assert_eq!((name.as_str(), host_of(&name).as_deref()), (expect, Some(expect)));
        }
    }
}
