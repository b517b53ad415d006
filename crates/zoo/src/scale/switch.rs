//! The network between the machines: a bridge in a network namespace that this process enters.
//!
//! # Invariant
//!
//! - From [`ScaleSwitch::enter`] on, this process reaches the machines of the cluster and nothing else.

use std::fs::File;
use std::io::{self, Error};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use unhang_demo_servers::child_processes::{ChildStreams, start_with};

/// The bridge. No other network namespace sees the name.
const BRIDGE: &str = "switch";

/// The switch of a cluster.
#[derive(Debug)]
pub struct ScaleSwitch {
    used: AtomicU8,
}

/// A cable from the switch to a machine.
#[derive(Debug)]
pub(super) struct Cable {
    port: String,
    pub(super) address: Ipv4Addr,
}

impl ScaleSwitch {
    /// Enters a new network namespace, and makes the switch there. No other thread may run yet, since it would stay outside.
    ///
    /// # Errors
    /// Fails without the right to make namespaces, or without `ip` of iproute2. The error says which.
    pub fn enter() -> io::Result<Self> {
        let needs = |error: rustix::io::Errno| {
            Error::other(format!(
                "the right to make namespaces is missing ({error}): run this as root, outside of containers without CAP_SYS_ADMIN"
            ))
        };
        unshare_network().map_err(needs)?;
        run("ip", &["link", "set", "lo", "up"])?;
        run("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        run("ip", &["addr", "add", &format!("{}/24", address(1)), "dev", BRIDGE])?;
        run("ip", &["link", "set", BRIDGE, "up"])?;
        Ok(Self { used: AtomicU8::new(1) })
    }

    /// Connects the network namespace of a process with the switch.
    pub(super) fn connect(&self, pid: u32) -> io::Result<Cable> {
        let number = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        let (port, pid, address) = (format!("port{number}"), pid.to_string(), address(number));
        run("ip", &["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        run("ip", &["link", "set", &port, "master", BRIDGE])?;
        run("ip", &["link", "set", &port, "up"])?;
        let inside = ["--target", &pid, "--net", "--", "ip"];
        let with_length = format!("{address}/24");
        run("nsenter", &[&inside[..], &["addr", "add", &with_length, "dev", "eth0"]].concat())?;
        run("nsenter", &[&inside[..], &["link", "set", "eth0", "up"]].concat())?;
        Ok(Cable { port, address })
    }
}

impl Cable {
    /// Cuts the cable, or mends it.
    pub(super) fn set(&self, is_up: bool) -> io::Result<()> {
        run("ip", &["link", "set", &self.port, if is_up { "up" } else { "down" }])
    }
}

/// Returns an address of the range for tests of networks (RFC 2544).
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, number)
}

#[expect(unsafe_code, reason = "rustix cannot know that no table of descriptors is unshared")]
fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: only unsharing the table of descriptors is unsafe, and this does not.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Runs a program that ends soon, and fails as it does.
pub(super) fn run(program: &str, words: &[&str]) -> io::Result<()> {
    run_into(program, words, None)
}

/// Does the same with everything that it prints in a file.
pub(super) fn run_into(program: &str, words: &[&str], log: Option<&Path>) -> io::Result<()> {
    let output = || match log {
        Some(log) => File::options().create(true).append(true).open(log).map(Stdio::from),
        None => Ok(Stdio::null()),
    };
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let streams = ChildStreams { stdin: Stdio::null(), stdout: output()?, stderr: output()? };
    let mut child = start_with(program, &words, streams, false)
        .map_err(|error| Error::other(format!("{program} cannot be started: {error}")))?;
    let status = super::machine::ended(&mut child)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::other(format!("`{program} {}` failed: {status}", words.join(" "))))
}
