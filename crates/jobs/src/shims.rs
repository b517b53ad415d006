//! Starts the supervisor of a job that has a slot.
//!
//! Invariants
//!
//! - A supervisor inherits nothing: no stream, no environment, no terminal. Its name and its arguments hold neither unhang's name nor the
//!   path of the data folder, so that `pkill unhang` spares it, with `-f` too.

use std::{ffi::OsString, io, path::PathBuf};

use unhang_proc::{
    SUPERVISOR_NAME,
    lookup::this_program,
    outside::{start_supervisor, supervisor_launch},
    spawn::spawn,
};

use crate::{
    folder::DataFolder, id::JobId, record::ProcessRecord, store::ShimStarter, timestamp::JobTimestamp,
};

/// The name of a supervisor in the process list.
pub const NAME: &str = SUPERVISOR_NAME;

/// The hidden first argument of unhang's own binary.
pub const ARGUMENT: &str = SUPERVISOR_NAME;

/// The command that runs unhang's own binary as a supervisor: it ends up in [`shim::run`](crate::shim::run).
#[derive(Clone, Debug)]
pub struct ShimCommand {
    /// Usually `/proc/self/exe`, which stays right when the file is replaced.
    pub program: PathBuf,
    /// The hidden words before the job's id, usually [`ARGUMENT`].
    pub arguments: Vec<OsString>,
}

impl ShimCommand {
    /// Makes the command for this very program. Its `main` has to call [`shim::run_if_asked`](crate::shim::run_if_asked) first thing.
    #[must_use]
    pub fn this_program() -> Self {
        Self { program: this_program(), arguments: vec![ARGUMENT.into()] }
    }

    fn is_this_program(&self) -> bool {
        self.program == this_program() && self.arguments == [ARGUMENT]
    }
}

/// Starts a supervisor for the job and returns. The supervisor stands in the job's folder, which tells it everything.
pub(crate) fn start(command: &ShimCommand, data: &DataFolder, id: JobId) -> io::Result<()> {
    let folder = data.job(id);
    // Below a guard, a child of this process would end with the server. A watcher that answers too late starts a second supervisor. It does
    // not get the lock of the job, and ends.
    if command.is_this_program() && start_supervisor(id.as_str(), folder.path()).is_ok() {
        return Ok(());
    }
    let mut arguments = command.arguments.clone();
    arguments.push(id.as_str().into());
    let process = spawn(supervisor_launch(&command.program, &arguments, folder.path()))?;
    // The supervisor outlives this process; if it does not, it is reaped with the next start.
    drop(process);
    Ok(())
}

/// Returns this process as the starter of supervisors.
pub(crate) fn this_process() -> io::Result<ShimStarter> {
    let unknown =
        || io::Error::new(io::ErrorKind::Unsupported, "the system does not tell when a process was started");
    let process: ProcessRecord = unhang_proc::identity::Identity::own().ok_or_else(unknown)?.into();
    Ok(ShimStarter { boot_id: unhang_proc::identity::boot_id()?, process, since: JobTimestamp::now() })
}
