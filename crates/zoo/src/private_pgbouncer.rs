//! A PgBouncer for one test, in the mode `transaction`: clients share a few connections to a database.
//!
//! Invariant: it ends with the value that stands for it, and with this process, however that ends.

use std::fs::{self, Permissions};
use std::io::{self, Error};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use unhang_demo_servers::bounded_waits;

use crate::private_postgres::{
    LOOK, OWNER, PASSWORD, PrivatePostgres, RunningServer, START_LIMIT, free_port, give_away, text,
    without_rights,
};

/// A running PgBouncer.
#[derive(Debug)]
pub struct PrivatePgbouncer {
    folder: PathBuf,
    port: u16,
    running: Option<RunningServer>,
}

impl PrivatePgbouncer {
    /// Starts this program in front of a server, with so many connections to each database, and waits until it answers.
    ///
    /// # Errors
    /// Fails if it cannot be started, or does not answer in time.
    pub fn start(program: &Path, name: &str, server: &PrivatePostgres, connections: u32) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("unhang-pgbouncer-{}-{name}", std::process::id()));
        fs::create_dir(&folder)?;
        let mut pooler = Self { folder, port: free_port()?, running: None };
        let (users, settings) = (pooler.folder.join("users"), pooler.folder.join("settings.ini"));
        fs::write(&users, format!("\"{OWNER}\" \"{PASSWORD}\"\n"))?;
        let text_of_settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = plain\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 500\n",
            server.port(),
            pooler.port,
            users.display()
        );
        fs::write(&settings, text_of_settings)?;
        for path in [&pooler.folder, &users, &settings] {
            give_away(path)?;
        }
        fs::set_permissions(&pooler.folder, Permissions::from_mode(0o700))?;
        let command = without_rights(program, [text(&settings).as_str()].into_iter());
        pooler.running = Some(RunningServer::spawn(command, &pooler.folder.join("log"))?);
        pooler.wait_until_ready()?;
        Ok(pooler)
    }

    /// Returns the address of a database of the server, through the pooler.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let password = PASSWORD.replace(' ', "%20");
        format!("postgres://{OWNER}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let end = bounded_waits::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let has_ended = self.running.as_ref().is_none_or(RunningServer::has_ended);
            if has_ended || bounded_waits::now() > end {
                return Err(Error::other(fs::read_to_string(self.folder.join("log")).unwrap_or_default()));
            }
            // Between two looks: a port cannot be waited on.
            bounded_waits::pause(LOOK);
        }
        Ok(())
    }
}

impl Drop for PrivatePgbouncer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(Signal::INT);
        }
        fs::remove_dir_all(&self.folder).ok();
    }
}
