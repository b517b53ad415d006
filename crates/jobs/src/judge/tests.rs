use std::{
    fs,
    io::{self, PipeWriter, Write as _},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use unhang_proc::{
    identity::kernel_boot,
    spawn::{Environment, Launch, spawn},
};

use super::*;
use crate::{
    record::{FORMAT, JobState, ProcessRecord},
    testing::{NOBODY, PATIENCE, TestFolder},
    wait::{WaitLimit, look_until},
};

/// The time when a supervisor took the job.
fn started() -> JobTimestamp {
    JobTimestamp::from_millis(1000)
}

/// A job with a slot that is looked at.
struct JudgedJob {
    test: TestFolder,
    job: JobRow,
    held: Option<Lock>,
}

impl JudgedJob {
    fn new() -> Self {
        let mut test = TestFolder::new();
        let job = test.begin();
        Self { test, job, held: None }
    }

    fn folder(&self) -> JobFolder {
        self.test.data.job(self.job.record.job_id)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.folder().file(name), content).unwrap();
    }

    /// The starter has gone, and the job was started so often.
    fn given_up(&mut self, starts: u32) {
        self.started_by(|starter| starter.process = NOBODY);
        self.job.claims = starts;
    }

    /// Another process is the starter, also in the database.
    fn started_by(&mut self, change: impl FnOnce(&mut ShimStarter)) {
        let (id, mut starter) = (self.job.record.job_id, self.test.starter.clone());
        change(&mut starter);
        let seen = self.job.claimant.take();
        let taken = self.test.store.take_over(id, seen.as_ref(), &starter);
        assert!(taken.unwrap());
        self.job = self.test.get(id);
    }

    fn own(&self) -> ProcessRecord {
        self.test.starter.process
    }

    fn boot(&self) -> String {
        self.test.starter.boot_id.clone()
    }

    /// The boot as a process in another container on this system sees it.
    fn container(&self) -> String {
        format!("{}-another", kernel_boot(&self.test.starter.boot_id))
    }

    fn run(&self, boot_id: String, shim: ProcessRecord, lifeline: Option<ProcessRecord>) {
        let run = RunRecord {
            format: FORMAT,
            boot_id,
            shim,
            work: None,
            control_group: None,
            lifeline,
            started_at: started(),
        };
        self.folder().write(RUN, &run).unwrap();
    }

    fn dead_run(&mut self) {
        self.run(self.boot(), NOBODY, None);
    }

    /// Returns what is found, in short, and the words about the end.
    fn found(&mut self) -> (String, String) {
        let admission = JobAdmission { starter: &self.test.starter, limit: None, is_open: false };
        let found = judge(&self.test.data, &mut self.test.store, &self.job, &admission).unwrap();
        let row = self.test.get(self.job.record.job_id);
        match found {
            JobFinding::Alive => {
                assert_eq!(row, self.job, "nothing was changed");
                ("alive".to_owned(), String::new())
            }
            JobFinding::StartIt => {
                assert_eq!((row.claims, row.is_active), (self.job.claims + 1, true));
                assert_eq!(row.claimant.as_ref(), Some(&self.test.starter), "this process starts it");
                // A child of another test has a copy of the lock until it has executed its program.
                let free = || Ok::<_, ()>((!self.folder().is_locked()).then_some(()));
                let is_free = look_until(WaitLimit::after(PATIENCE), Duration::from_millis(1), free).unwrap();
                assert!(is_free.is_some(), "the supervisor needs the lock");
                ("start".to_owned(), String::new())
            }
            JobFinding::Settled(_) => {
                let ending = row.record.ending.unwrap();
                let ran = if ending.started_at == Some(started()) { "ran" } else { "-" };
                let reason = ending.reason.map_or("-".to_owned(), |reason| reason.to_string());
                let found = format!("{} {reason} {ran}", row.record.status);
                (found, ending.detail.unwrap_or_default())
            }
        }
    }
}

/// A case: its name, what happened to the job, the finding, and words about the end.
type JudgedRow = (&'static str, fn(&mut JudgedJob), &'static str, &'static str);

fn check(cases: &[JudgedRow]) {
    for (what, prepare, expected, words) in cases {
        let mut case = JudgedJob::new();
        prepare(&mut case);
        let (found, detail) = case.found();
        assert_eq!(found, *expected, "{what}: {detail}");
        assert!(detail.contains(words), "{what}: {detail}");
    }
}

#[test]
fn x_07_a_job_is_judged_by_its_lock_and_by_the_supervisor_that_lives_without_it() {
    check(&[
        (
            "another process has the lock",
            |case| case.held = Lock::try_take(&case.folder().file(LOCK)).unwrap(),
            "alive",
            "",
        ),
        (
            "the folder is gone",
            |case| fs::remove_dir_all(case.folder().path()).unwrap(),
            "lost record_damaged -",
            "is gone",
        ),
        (
            "a file lies in the place of the folder",
            |case| {
                fs::remove_dir_all(case.folder().path()).unwrap();
                fs::write(case.folder().path(), "").unwrap();
            },
            "lost record_damaged -",
            "something other than its folder is at the path",
        ),
        (
            "the lock was removed, and the supervisor lives",
            |case| case.run(case.boot(), case.own(), None),
            "alive",
            "",
        ),
        (
            "a folder lies in the place of the lock, and the supervisor lives",
            |case| {
                fs::create_dir(case.folder().file(LOCK)).unwrap();
                case.run(case.boot(), case.own(), None);
            },
            "alive",
            "",
        ),
        (
            "a folder lies in the place of the lock, and the supervisor that lives has just noted the end",
            |case| {
                fs::create_dir(case.folder().file(LOCK)).unwrap();
                case.run(case.boot(), case.own(), None);
                case.folder().write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
            },
            "alive",
            "",
        ),
        (
            "a folder lies in the place of the lock, and the supervisor is dead",
            |case| {
                fs::create_dir(case.folder().file(LOCK)).unwrap();
                case.dead_run();
            },
            "lost shim_killed ran",
            "its supervisor was killed",
        ),
        (
            "a folder lies in the place of the lock, and no supervisor ever came",
            |case| {
                fs::create_dir(case.folder().file(LOCK)).unwrap();
                case.given_up(5);
            },
            "failed start_failed -",
            "cannot lock",
        ),
    ]);
}

#[test]
fn x_07_a_job_whose_lock_is_free_is_judged_by_its_records() {
    check(&[
        ("a supervisor was killed", JudgedJob::dead_run, "lost shim_killed ran", "its supervisor was killed"),
        (
            "the machine was restarted, and the number is another's now",
            |case| case.run("0000-1".to_owned(), case.own(), None),
            "lost reboot ran",
            "the machine was restarted",
        ),
        (
            "a supervisor in another container, whose number is another's here",
            |case| case.run(case.container(), case.own(), None),
            "lost shim_killed ran",
            "its supervisor was killed",
        ),
        (
            "the server was stopped, and the supervisor with it",
            |case| case.run(case.boot(), NOBODY, Some(NOBODY)),
            "lost shim_killed ran",
            "the command that had started its server ended everything",
        ),
        (
            "the server goes on, and the supervisor was killed",
            |case| case.run(case.boot(), NOBODY, Some(case.own())),
            "lost shim_killed ran",
            "its supervisor was killed",
        ),
        (
            "the end is known",
            |case| {
                case.dead_run();
                case.folder().write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
            },
            "completed - -",
            "",
        ),
        (
            "the end is known, and the supervisor's record is damaged",
            |case| {
                case.write(RUN, "{");
                case.folder().write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
            },
            "completed - -",
            "",
        ),
        ("the end is damaged", |case| case.write(EXIT, "{"), "lost record_damaged -", "exit.json is damaged"),
        ("the run is damaged", |case| case.write(RUN, "{"), "lost record_damaged -", "run.json is damaged"),
        ("it was cancelled before it began", |case| case.write(CANCEL, ""), "cancelled - -", ""),
        (
            "it was cancelled, and the supervisor was killed",
            |case| {
                case.write(CANCEL, "");
                case.dead_run();
            },
            "cancelled shim_killed ran",
            "its supervisor had to be killed",
        ),
        (
            "it was cancelled, and had ended before",
            |case| {
                case.write(CANCEL, "");
                case.folder().write(EXIT, &EndRecord::without_run(JobEnd::Failed)).unwrap();
            },
            "failed - -",
            "",
        ),
    ]);
}

#[test]
fn a_job_without_a_supervisor_waits_for_its_starter_and_is_started_five_times() {
    check(&[
        ("the starter is at it", |_| {}, "alive", ""),
        (
            "the starter has not come to it in two seconds",
            |case| case.started_by(|starter| starter.since = started()),
            "start",
            "",
        ),
        ("the starter is dead", |case| case.started_by(|starter| starter.process = NOBODY), "start", ""),
        (
            "the starter is in another container",
            |case| {
                let container = case.container();
                case.started_by(|starter| (starter.boot_id, starter.process) = (container, NOBODY));
            },
            "alive",
            "",
        ),
        (
            "the starter was in another container",
            |case| {
                let container = case.container();
                case.started_by(|starter| (starter.boot_id, starter.since) = (container, started()));
            },
            "start",
            "",
        ),
        (
            "the starter was there before the machine was restarted",
            |case| case.started_by(|starter| starter.boot_id = "0000-1".to_owned()),
            "lost reboot -",
            "the machine was restarted",
        ),
        (
            "five tries were in vain",
            |case| case.given_up(5),
            "failed start_failed -",
            "its supervisor did not start in 5 tries; the system may be out of processes or memory",
        ),
        ("six tries were in vain", |case| case.given_up(6), "failed start_failed -", "in 5 tries"),
    ]);
    // Four tries leave one.
    let mut case = JudgedJob::new();
    for _ in 0..3 {
        case.started_by(|starter| starter.process = NOBODY);
    }
    assert_eq!((case.job.claims, case.found().0.as_str()), (4, "start"));
    // Another process was faster.
    let mut case = JudgedJob::new();
    case.started_by(|starter| starter.process = NOBODY);
    let seen = case.job.clone();
    case.started_by(|starter| starter.since = started());
    let admission = JobAdmission { starter: &case.test.starter, limit: None, is_open: false };
    let found = judge(&case.test.data, &mut case.test.store, &seen, &admission).unwrap();
    assert!(matches!(found, JobFinding::Alive), "{found:?}");
}

#[test]
fn a_damaged_end_is_put_aside_and_the_folder_keeps_its_permissions() {
    let mut case = JudgedJob::new();
    case.write(EXIT, "{");
    fs::create_dir(case.folder().file(LOCK)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(case.folder().path(), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(case.found().0, "lost record_damaged -");
    assert_eq!(fs::read_to_string(case.folder().file("exit.json.damaged")).unwrap(), "{");
    assert_eq!(case.folder().read::<EndRecord>(EXIT).unwrap().unwrap().outcome, JobEnd::Lost);
    assert_eq!(mode(case.folder().path()), 0o750, "they were not in the way");
}

/// A process that has outlived its parent, the leader of its session.
struct Orphan {
    leader: ProcessRecord,
    member: Identity,
    /// The end of the member's input: the process ends with the test, whatever becomes of that.
    _input: PipeWriter,
}

impl Orphan {
    /// Starts a session of two processes, and waits until one is left.
    fn start(folder: &Path, variables: Vec<(&str, String)>) -> Self {
        // The member says itself that it is there: while a program is being executed, its variables cannot be read.
        let script = "read go; exec 3<&0; sh -c 'echo $$ > left; read never <&3' &";
        let arguments = ["-c", script].map(Into::into);
        let environment = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (output, mut input) = io::pipe().unwrap();
        let mut leader = spawn(Launch {
            folder: Some(folder),
            environment: &Environment::Exactly(environment),
            input: unhang_proc::spawn::Stream::Descriptor(output.into()),
            ..Launch::new(Path::new("/bin/sh"), &arguments)
        })
        .unwrap();
        let leader_identity = Identity::of(leader.pid()).unwrap();
        input.write_all(b"go\n").unwrap();
        let wait = Duration::from_millis(1);
        let ended = look_until(WaitLimit::after(PATIENCE), wait, || Ok::<_, ()>(leader.try_reap()));
        ended.unwrap().expect("the shell ends");
        let left = || fs::read_to_string(folder.join("left")).ok().filter(|text| text.ends_with('\n'));
        let left = look_until(WaitLimit::after(PATIENCE), wait, || Ok::<_, ()>(left()));
        let left = left.unwrap().expect("the member is there").trim().parse().unwrap();
        Self { leader: leader_identity.into(), member: Identity::of(left).unwrap(), _input: input }
    }
}

#[test]
fn what_a_dead_supervisor_left_is_ended_and_counted_and_nothing_of_another_boot() {
    type Prepare = fn(&JudgedJob, ProcessRecord);
    let cases: [(&str, bool, Prepare, u32); 7] = [
        ("by its session", false, |case, shim| case.run(case.boot(), shim, None), 1),
        ("by its variable", true, |case, _| case.run(case.boot(), NOBODY, None), 1),
        (
            "by its variable, in another container",
            true,
            |case, shim| case.run(case.container(), shim, None),
            1,
        ),
        ("a session of another container", false, |case, shim| case.run(case.container(), shim, None), 0),
        ("of another boot", true, |case, shim| case.run("0000-1".to_owned(), shim, None), 0),
        ("without a readable record", true, |case, _| case.write(RUN, "{"), 1),
        ("without a folder", true, |case, _| fs::remove_dir_all(case.folder().path()).unwrap(), 1),
    ];
    for (what, has_variable, prepare, leaked) in cases {
        let mut case = JudgedJob::new();
        let variable = ("UNHANG_JOB_ID", case.job.record.job_id.to_string());
        let variables = if has_variable { vec![variable] } else { Vec::new() };
        let orphan = Orphan::start(case.test.folder.path(), variables);
        prepare(&case, orphan.leader);
        case.found();
        let lives = orphan.member.is_alive();
        let _gone_already = orphan.member.signal(rustix::process::Signal::KILL);
        let row = case.test.get(case.job.record.job_id);
        assert_eq!(row.record.status, JobState::Lost, "{what}");
        assert_eq!((row.record.ending.unwrap().leaked, lives), (leaked, leaked == 0), "{what}");
    }
}
