//! A PostgreSQL server on a machine of its own, whose processes can all be killed at one moment.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Error};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use unhang_demo_servers::bounded_waits;

use super::machine::{MachineProgram, MachineUser, ScaleMachine};
use super::switch::run_into;
use crate::private_postgres::{OWNER, PASSWORD};

/// The user and group `nobody` of most systems: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
const PORT: u16 = 5432;
/// The time that the server may take to start, and to repair itself after a kill.
const START_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A database on a machine of its own.
pub struct ScaleDatabase {
    machine: ScaleMachine,
    programs: PathBuf,
    /// The data, on a disk: a machine's own file system is in memory.
    folder: PathBuf,
    server: Option<MachineProgram>,
}

impl ScaleDatabase {
    /// Makes a server on this machine with the programs in a folder, and waits until it answers. `folder` does not exist yet. `settings` are
    /// lines for the configuration file.
    ///
    /// # Errors
    /// Fails if the server cannot be made, or does not answer in time.
    pub fn start(machine: ScaleMachine, programs: &Path, folder: &Path, settings: &str) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(folder)?;
        let mut database =
            Self { machine, programs: programs.to_owned(), folder: folder.to_owned(), server: None };
        database.create(settings)?;
        database.resume()?;
        Ok(database)
    }

    fn create(&self, settings: &str) -> io::Result<()> {
        let password = self.folder.join("password");
        fs::write(&password, PASSWORD)?;
        fs::set_permissions(&password, Permissions::from_mode(0o600))?;
        for path in [&self.folder, &password] {
            chown(path, Some(NOBODY), Some(NOBODY))?;
        }
        let (initdb, data) = (self.programs.join("initdb"), self.data());
        let (initdb, data, password) =
            (initdb.to_string_lossy(), data.to_string_lossy(), password.to_string_lossy());
        let rights = ["--reuid", "65534", "--regid", "65534", "--clear-groups", &initdb];
        let options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"];
        let files = ["--username", OWNER, "--pwfile", &password, "--pgdata", &data];
        run_into("setpriv", &[&rights[..], &options, &files].concat(), Some(&self.log()))?;
        let address = self.machine.address();
        let settings = format!(
            "listen_addresses = '{address}'\nport = {PORT}\nunix_socket_directories = ''\n{settings}\n"
        );
        fs::write(self.data().join("postgresql.auto.conf"), settings)?;
        let rules = self.data().join("pg_hba.conf");
        let own = fs::read_to_string(&rules)?;
        fs::write(rules, format!("{own}\nhost all all samenet scram-sha-256\n"))
    }

    /// Kills all processes of the server at one moment.
    ///
    /// # Errors
    /// Fails if one of them is still there after a while.
    pub fn kill(&mut self) -> io::Result<()> {
        self.machine.kill()?;
        self.server = None;
        Ok(())
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Errors
    /// Fails if it does not answer in time.
    pub fn resume(&mut self) -> io::Result<()> {
        let pids = self.data().join("postmaster.pid");
        if self.server.is_none() {
            // After a kill a new life may be needed, and its processes get the numbers of the old ones.
            self.machine.kill()?;
            self.machine.boot()?;
            fs::remove_file(&pids).ok();
        }
        let program = self.programs.join("postgres").display().to_string();
        let data = self.data().display().to_string();
        let words = [program, "-D".to_owned(), data];
        let variables = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let server = self.machine.run(MachineUser::Nobody, &words, &variables, &self.log())?;
        let limit = bounded_waits::now() + START_LIMIT;
        while bounded_waits::now() < limit && !server.has_ended()? {
            let told = fs::read_to_string(&pids).unwrap_or_default();
            if told.lines().nth(7).is_some_and(|state| state.trim() == "ready") {
                self.server = Some(server);
                return Ok(());
            }
            // Between two looks: a file cannot be waited on.
            bounded_waits::pause(LOOK);
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        Err(Error::other(format!("the database does not start: {log}")))
    }

    /// Returns the address of its first database, for its owner.
    #[must_use]
    pub fn url(&self) -> String {
        let (address, password) = (self.machine.address(), PASSWORD.replace(' ', "%20"));
        // The network belongs to this run alone.
        format!("postgres://{OWNER}:{password}@{address}:{PORT}/postgres?sslmode=disable")
    }

    /// Returns the machine.
    #[must_use]
    pub fn machine(&self) -> &ScaleMachine {
        &self.machine
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }
}
