//! A database, workers on machines of their own, and a machine on which jobs are submitted.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use unhang::{
    jobs::{id::JobId, store::JobStore as _},
    postgres::{PasswordSources, PostgresStore, StoreAddress},
};
use unhang_zoo::scale::{
    ClockLibrary, MachineProgram, MachineUser, ScaleDatabase, ScaleMachine, ScalePlace, ScaleSwitch,
    SteppedClock, TOKEN_VARIABLE, interrupted_by,
};

use super::failure::ScaleFailure;

/// For everything that is waited for; the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The programs and files that a stage needs.
#[derive(Debug)]
pub(super) struct StageProps<'a> {
    pub(super) switch: &'a ScaleSwitch,
    pub(super) place: &'a ScalePlace,
    pub(super) unhang: &'a str,
    /// The folder with the programs of PostgreSQL.
    pub(super) postgres: &'a Path,
    /// The library for clocks that are set.
    pub(super) clock: &'a Path,
}

/// Whether the clocks of a stage can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageClocks {
    Usual,
    Stepped,
}

/// A worker on a machine of its own.
pub(super) struct StageWorker {
    pub(super) machine: ScaleMachine,
    program: Option<MachineProgram>,
    log: PathBuf,
    words: Vec<String>,
    variables: Vec<(String, String)>,
}

/// A stage.
pub(super) struct ScaleStage {
    pub(super) database: ScaleDatabase,
    pub(super) workers: Vec<StageWorker>,
    client: ScaleMachine,
    unhang: String,
    log: PathBuf,
}

impl ScaleStage {
    /// Makes a stage with so many workers, which get these arguments.
    pub(super) fn set(
        props: &StageProps<'_>,
        name: &str,
        clocks: StageClocks,
        (workers, arguments): (usize, &[&str]),
    ) -> Result<Self, ScaleFailure> {
        let machine = |part: &str| -> Result<ScaleMachine, ScaleFailure> {
            let folder = props.place.path(&format!("{name}-{part}"));
            fs::create_dir(&folder).map_err(ScaleFailure::of("make a folder"))?;
            let clock = match clocks {
                StageClocks::Usual => None,
                StageClocks::Stepped => {
                    let library = ClockLibrary(props.clock.to_owned());
                    let made = SteppedClock::make(library, &folder.with_extension("clock"));
                    Some(made.map_err(ScaleFailure::of("make a clock"))?)
                }
            };
            ScaleMachine::start(props.switch, part, &folder, clock)
                .map_err(ScaleFailure::of("start a machine"))
        };
        let database = ScaleDatabase::start(
            machine("database")?,
            props.postgres,
            &props.place.path(&format!("{name}-data")),
            "max_connections = 200\nshared_buffers = 128MB",
        )
        .map_err(ScaleFailure::of("start the database"))?;
        let variables = |machine: &ScaleMachine| {
            let home = machine.folder().display().to_string();
            [
                ("PATH", "/usr/bin:/bin".to_owned()),
                ("HOME", home.clone()),
                ("TMPDIR", home.clone()),
                ("UNHANG_HOME", format!("{home}/unhang")),
                ("UNHANG_MEMORY_LIMIT", "100".to_owned()),
                ("UNHANG_JOBS_STORE", database.url()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec()
        };
        let mut started = Vec::new();
        for number in 0..workers {
            let machine = machine(&format!("worker{number}"))?;
            let own = [props.unhang, "worker", "--any-command"];
            let mut worker = StageWorker {
                words: own.iter().chain(arguments).map(|word| (*word).to_owned()).collect(),
                variables: variables(&machine),
                log: machine.folder().with_extension("log"),
                machine,
                program: None,
            };
            worker.start()?;
            started.push(worker);
        }
        let client = machine("client")?;
        let log = client.folder().with_extension("log");
        Ok(Self { database, workers: started, client, unhang: props.unhang.to_owned(), log })
    }

    /// Connects to the store.
    pub(super) fn store(&self) -> Result<PostgresStore, ScaleFailure> {
        PostgresStore::open(self.address()?).map_err(ScaleFailure::of("connect to the store"))
    }

    /// Returns the address of the store.
    pub(super) fn address(&self) -> Result<StoreAddress, ScaleFailure> {
        address(&self.database.url())
    }

    /// Submits a job with `unhang job run`, as a person would. Returns whether it was accepted. After an error of the command, the store has
    /// the last word.
    pub(super) fn submit(&self, id: JobId, flags: &[&str], command: &[&str]) -> Result<bool, ScaleFailure> {
        let id = id.to_string();
        let words = [&[&*self.unhang, "job", "run", "--id", &id][..], flags, &["--"], command].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let home = self.client.folder().display().to_string();
        let variables = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("HOME", home.clone()),
            ("UNHANG_HOME", format!("{home}/unhang")),
            ("UNHANG_JOBS_STORE", self.database.url()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let asked = self.client.ask(&words, &variables, &self.log);
        let (is_accepted, told) = asked.map_err(ScaleFailure::of("submit a job"))?;
        if is_accepted {
            let is_same = told.contains(&*id);
            return if is_same {
                Ok(true)
            } else {
                Err(ScaleFailure::new(format!("the id of job {id} is {told}")))
            };
        }
        Ok(self
            .store()?
            .get(id.parse().map_err(ScaleFailure::of("read an id"))?)
            .is_ok_and(|job| job.is_some()))
    }

    /// Sets the clock of the machine on which jobs are submitted.
    pub(super) fn set_client_clock(&self, seconds: i64) -> Result<(), ScaleFailure> {
        let clock =
            self.client.clock().ok_or_else(|| ScaleFailure::new("the clocks of this stage are not set"))?;
        clock.step(seconds).map_err(ScaleFailure::of("set a clock"))
    }

    /// Waits until so many workers are known to the store.
    pub(super) fn wait_for_workers(&self, count: usize) -> Result<(), ScaleFailure> {
        let mut store = self.store()?;
        until("the workers are known to the store", PATIENCE, || {
            let known = unhang::postgres::WorkerList(&mut store).all();
            Ok((known.map_err(ScaleFailure::of("list workers"))?.len() >= count).then_some(()))
        })
    }
}

impl StageWorker {
    /// Starts the worker, on a machine that lives.
    pub(super) fn start(&mut self) -> Result<(), ScaleFailure> {
        let program = self.machine.run(MachineUser::Root, &self.words, &self.variables, &self.log);
        self.program = Some(program.map_err(ScaleFailure::of("start a worker"))?);
        Ok(())
    }

    /// Returns the worker's process; `None` while it is dead.
    pub(super) fn program(&mut self) -> Option<&mut MachineProgram> {
        self.program.as_mut()
    }

    /// Returns whether the worker has the library for clocks.
    pub(super) fn has_clock(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.has_mapped("libfaketime"))
    }

    /// Returns what the worker has said about a job.
    pub(super) fn told_about(&self, id: JobId) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(id.as_str())).map(|line| format!("\n  {line}")).collect()
    }

    /// Kills the worker alone.
    pub(super) fn kill(&mut self) -> Result<(), ScaleFailure> {
        self.program
            .take()
            .map_or(Ok(()), |mut program| program.kill())
            .map_err(ScaleFailure::of("kill a worker"))
    }
}

/// Reads the address of a store.
pub(super) fn address(url: &str) -> Result<StoreAddress, ScaleFailure> {
    StoreAddress::parse(url, &PasswordSources::default()).map_err(ScaleFailure::of("read an address"))
}

/// Returns the words of work that tells its beginning and its end.
pub(super) fn work(token: &str, length: Duration, code: i32) -> Vec<String> {
    let half = length.as_secs_f64() / 2.0;
    let script = format!("echo begun; sleep {half:.3}; echo middle; sleep {half:.3}; echo done; exit {code}");
    let variable = format!("{TOKEN_VARIABLE}={token}");
    ["env", &variable, "sh", "-c", &script].map(str::to_owned).into()
}

/// Looks until there is something.
pub(super) fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, ScaleFailure>,
) -> Result<T, ScaleFailure> {
    let end = unhang_zoo::scale::uptime() + limit;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        check_interrupted()?;
        if unhang_zoo::scale::uptime() > end {
            return Err(ScaleFailure::new(format!("in vain for {} s: {what}", limit.as_secs())));
        }
        // Between two looks: neither the store nor the table of processes tells of changes.
        unhang_zoo::scale::rest(Duration::from_millis(20));
    }
}

/// Fails if somebody wants this program to end.
pub(super) fn check_interrupted() -> Result<(), ScaleFailure> {
    interrupted_by().map_or(Ok(()), |signal| Err(ScaleFailure::Interrupted(signal)))
}
