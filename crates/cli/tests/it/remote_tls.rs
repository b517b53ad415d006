//! Servers over https: what is spoken is TLS, and whoever cannot prove who it is, is not spoken to.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::harness::{PATIENCE, Remote, Sandbox, run_to_end};

/// More than a command makes.
const CONNECTIONS: usize = 32;

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/authority.pem");
const SERVER: &[u8] = include_bytes!("../certificates/server.pem");
const KEY: &[u8] = include_bytes!("../certificates/server.key");

/// Puts TLS in front of a server, at this address of the machine itself, and gives the port.
fn behind_tls(remote: &Remote, address: &str) -> u16 {
    let certificates =
        CertificateDer::pem_slice_iter(SERVER).collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key));
    let config = Arc::new(config.expect("a configuration"));
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let host = remote.url["http://".len()..].split('/').next().expect("a host").to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().take(CONNECTIONS) {
            let (config, host) = (config.clone(), host.clone());
            // One that is broken off tells on the other side.
            thread::spawn(move || serve(stream?, config, &host));
        }
    });
    port
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, host: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut outside = StreamOwned::new(connection, stream);
    let mut inside = TcpStream::connect(host)?;
    inside.set_read_timeout(Some(PATIENCE))?;
    loop {
        pass(&mut outside, &mut inside)?;
        pass(&mut inside, &mut outside)?;
    }
}

/// Passes one message of HTTP on, which says its length or has nothing in it.
fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut message = Vec::new();
    while !message.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        message.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&message).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let start = message.len();
    message.resize(start + length.unwrap_or(0), 0);
    from.read_exact(&mut message[start..])?;
    to.write_all(&message)?;
    to.flush()
}

fn call(sandbox: &Sandbox, url: &str, authority: Option<&str>) -> (i32, String, String) {
    let mut command: Command = sandbox.unhang();
    command.args(["call", "--output", "json", url, "echo", "text=hi"]);
    if let Some(authority) = authority {
        command.env("SSL_CERT_FILE", authority);
    }
    run_to_end(command)
}

#[test]
fn https_is_spoken_to_whoever_proves_who_it_is_and_to_nobody_else() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved"]);
    let port = behind_tls(&remote, "127.0.0.1");

    let (code, stdout, stderr) = call(&sandbox, &format!("https://localhost:{port}/mcp"), Some(AUTHORITY));
    assert!(code == 0 && stdout.contains("\"text\":\"hi\""), "{code} {stdout} {stderr}");
    let reached = remote.asked().len();

    // Nobody whom the system trusts has signed for it.
    let (code, _, stderr) = call(&sandbox, &format!("https://localhost:{port}/mcp"), None);
    assert!(code == 3 && stderr.contains("certificate"), "{code} {stderr}");
    // It is another one's certificate.
    let port = behind_tls(&remote, "127.0.0.2");
    let (code, _, stderr) = call(&sandbox, &format!("https://127.0.0.2:{port}/mcp"), Some(AUTHORITY));
    assert!(code == 3 && stderr.contains("certificate"), "{code} {stderr}");
    assert_eq!(remote.asked().len(), reached, "nothing was said to it");
}
