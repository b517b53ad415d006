//! The sockets of `unhang serve --http`: at an address, or opened by a service manager.
//!
//! Invariant: if other machines can connect, every client has to identify itself, whoever has opened the socket.

use std::{fmt, io, net::SocketAddr, os::fd::OwnedFd};

use rustix::net::{AddressFamily, SocketType, getsockname, sockopt::socket_type};
use tokio::net::{TcpListener, UnixListener, lookup_host};
use unhang::front::http::HttpListener;

use super::access::PreparedHttp;

/// The word in place of an address if the sockets are handed over.
const HANDED_OVER: &str = "systemd";

/// Returns a warning if sockets were handed over but this address, or none, was asked for. Returns `None` otherwise.
pub(super) fn unused(address: Option<&str>, sockets: usize) -> Option<String> {
    (sockets > 0 && address != Some(HANDED_OVER)).then(|| {
        format!(
            "the {sockets} sockets that systemd handed over are not used; `--http {HANDED_OVER}` uses \
            them"
        )
    })
}

/// The sockets of the server.
pub(super) struct HttpListening {
    pub(super) listeners: Vec<HttpListener>,
    /// The addresses of the sockets on the network.
    pub(super) addresses: Vec<SocketAddr>,
    /// A warning for the person who runs the server.
    pub(super) warning: Option<String>,
}

/// Listens at an address, or takes the sockets that were handed over. Refuses addresses that other machines can reach, unless clients have
/// to identify themselves.
pub(super) async fn listen(
    address: &str,
    sockets: Vec<OwnedFd>,
    http_settings: &PreparedHttp,
) -> Result<HttpListening, String> {
    let wrong = |why: &dyn fmt::Display| format!("--http {address}: {why}");
    if address == HANDED_OVER {
        return handed_over(sockets, http_settings).map_err(|why| wrong(&why));
    }
    let all = lookup_host(address)
        .await
        .map_err(|error| wrong(&format!("{error}; give an address and a port, as in 127.0.0.1:8808")))?;
    let all: Vec<SocketAddr> = all.collect();
    suffices(http_settings, &all, "an address of this machine alone, as 127.0.0.1")
        .map_err(|why| wrong(&why))?;
    let listener = TcpListener::bind(&*all).await.map_err(|error| wrong(&unbound(&all, &error)))?;
    let address = listener.local_addr().map_err(|error| wrong(&error))?;
    Ok(HttpListening::new(vec![listener.into()], vec![address], http_settings))
}

/// Returns the reason why binding to these addresses failed, with the port.
fn unbound(addresses: &[SocketAddr], error: &io::Error) -> String {
    let port = addresses.first().map(SocketAddr::port).unwrap_or_default();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "port {port} is in use; end the program that listens there, or give another port (0: any that is free)"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} is not for this user; give one of 1024 or above")
        }
        _ => format!("port {port}: {error}"),
    }
}

/// Takes the sockets of a service manager.
fn handed_over(sockets: Vec<OwnedFd>, http_settings: &PreparedHttp) -> Result<HttpListening, String> {
    if sockets.is_empty() {
        return Err(
            "systemd handed over no socket; let a socket unit of systemd start unhang (`systemctl --user \
            start unhang.socket`), or give an address, as in 127.0.0.1:8808"
                .to_owned(),
        );
    }
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for (number, socket) in (1..).zip(sockets) {
        let wrong = |why: &dyn fmt::Display| format!("socket {number} of those handed over {why}");
        let cannot = |error: &dyn fmt::Display| wrong(&format!("cannot be used: {error}"));
        if !listens(&socket) {
            return Err(wrong(&"does not listen; name it with ListenStream=, and leave Accept=no as it is"));
        }
        match getsockname(&socket).map_err(|error| cannot(&error))?.address_family() {
            AddressFamily::INET | AddressFamily::INET6 => {
                let listener = std::net::TcpListener::from(socket);
                let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
                let listener = listener.map_err(|error| cannot(&error))?;
                addresses.push(listener.local_addr().map_err(|error| cannot(&error))?);
                listeners.push(listener.into());
            }
            AddressFamily::UNIX => {
                let listener = std::os::unix::net::UnixListener::from(socket);
                let listener = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
                listeners.push(HttpListener::Local(listener.map_err(|error| cannot(&error))?, None));
            }
            _ => return Err(wrong(&"is neither a TCP socket nor a Unix socket")),
        }
    }
    suffices(
        http_settings,
        &addresses,
        "set ListenStream= to an address of this machine alone, as 127.0.0.1:8808",
    )?;
    Ok(HttpListening::new(listeners, addresses, http_settings))
}

/// Returns whether a socket is one that clients can connect to. Systems other than Linux do not tell whether it listens.
fn listens(socket: &OwnedFd) -> bool {
    #[cfg(target_os = "linux")]
    let listens = rustix::net::sockopt::socket_acceptconn(socket).unwrap_or_default();
    #[cfg(not(target_os = "linux"))]
    let listens = true;
    listens && socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
}

/// Refuses addresses that other machines can reach if clients need not identify themselves.
fn suffices(http_settings: &PreparedHttp, addresses: &[SocketAddr], instead: &str) -> Result<(), String> {
    if addresses.iter().all(|address| http_settings.access.suffices_at(address.ip())) {
        return Ok(());
    }
    Err(format!(
        "other machines could use your servers without a token; add `tokens = [\"${{TOKEN}}\"]` under \
         [http] of unhang.toml, or [http.oauth], or give --token-file, or {instead}"
    ))
}

impl HttpListening {
    fn new(
        listeners: Vec<HttpListener>,
        addresses: Vec<SocketAddr>,
        http_settings: &PreparedHttp,
    ) -> HttpListening {
        let exposed =
            addresses.iter().find(|address| !address.ip().is_loopback() && http_settings.tls.is_none());
        let warning = exposed.map(|address| {
            format!(
                "machines between clients and {address} can read the tokens; set `tls` under [http] of \
                 unhang.toml, or let a reverse proxy speak TLS in front of unhang"
            )
        });
        HttpListening { listeners, addresses, warning }
    }

    /// Tells a person at which addresses MCP is served.
    pub(super) fn told(&self, http_settings: &PreparedHttp) -> String {
        let scheme = if http_settings.tls.is_some() { "https" } else { "http" };
        let url = |listener: &HttpListener| match listener {
            HttpListener::Network(listener) => {
                listener.local_addr().map(|address| format!("{scheme}://{address}/mcp"))
            }
            HttpListener::Local(listener, _) => listener.local_addr().map(|address| {
                let path = address
                    .as_pathname()
                    .map_or("a socket without a name".into(), |path| path.to_string_lossy());
                format!("{path} (/mcp over HTTP)")
            }),
        };
        let urls = self.listeners.iter().map(|listener| url(listener).unwrap_or_default());
        format!("MCP is at {}", urls.collect::<Vec<String>>().join(" and at "))
    }
}
