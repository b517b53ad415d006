//! The vices of the jobs, seen without anything that runs jobs.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::zoo_client::{ZooClient, clear, marked, marker, signal, wait_until};

/// A job's folder, which is removed at the end.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(marker(name));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Self(folder)
    }

    fn employ(&self, line: &str) -> ZooClient {
        let mut client = ZooClient::employ(&self.0, &line.split_whitespace().collect::<Vec<_>>());
        client.close_stdin();
        client
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn result(&self) -> String {
        fs::read_to_string(self.file("results.json")).expect("there is a result")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(client: &ZooClient) -> String {
    client.line().map(|line| String::from_utf8_lossy(&line).into_owned()).unwrap_or_default()
}

fn open(gate: &Path) {
    fs::write(gate, "").expect("the temporary folder can be written");
}

#[test]
fn codes_and_signals() {
    let room = Room::new("ends");
    assert_eq!(room.employ("exits-with 255").end().code(), Some(255));
    assert_eq!(room.employ("dies-by 9").end().signal(), Some(9));
    // SIGSEGV and SIGPIPE, which the runtime treats in its own way, and the last real-time signal.
    for number in [11, 13, 64] {
        assert_eq!(room.employ(&format!("dies-by {number}")).end().signal(), Some(number));
    }
    assert!(room.employ("dies-by 17").end().success(), "SIGCHLD kills nobody");
}

#[test]
fn what_is_read_and_printed() {
    let room = Room::new("prints");
    let mut reader = ZooClient::employ(&room.0, &["reads-stdin"]);
    reader.say(&serde_json::json!({}));
    reader.close_stdin();
    assert_eq!(text(&reader), "3 bytes of stdin\n");
    let mut flood = room.employ("floods 100000");
    assert_eq!(flood.line().map(|line| line.len()), Some(100_001));
    assert_eq!(text(&flood), "the last line of stdout\n");
    assert!(flood.end().success());
    let words = flood.last_words();
    assert!(words.len() > 100_000 && words.ends_with("\nthe last line of stderr\n"));
    let junk = room.employ("junk-output");
    let bytes: Vec<u8> = std::iter::from_fn(|| junk.line()).flatten().collect();
    assert!(std::str::from_utf8(&bytes).is_err() && bytes.contains(&0) && bytes.contains(&0x1b));
    assert!(!bytes.ends_with(b"\n"));
}

#[test]
fn results_that_are_none() {
    let room = Room::new("results");
    assert!(room.employ("not-a-number").end().success());
    assert!(room.result().contains("NaN"));
    assert!(room.employ("half-a-result").end().success());
    assert!(serde_json::from_str::<serde_json::Value>(&room.result()).is_err());
    let mut failing = room.employ("explains-its-failure");
    assert_eq!(failing.end().code(), Some(1));
    assert!(failing.last_words().ends_with("the last line says why\n"));
    assert!(fs::read_to_string(room.file("error.json")).expect("it is there").contains("reactor"));
    for form in ["fifo", "link", "folder", "huge"] {
        let room = Room::new(form);
        assert!(room.employ(&format!("odd-result {form}")).end().success());
        let found = fs::symlink_metadata(room.file("results.json")).expect("it is there");
        let kind = found.file_type();
        let is_odd = match form {
            "fifo" => kind.is_fifo(),
            "link" => kind.is_symlink(),
            "folder" => kind.is_dir(),
            _ => found.len() > 64 << 20,
        };
        assert!(is_odd, "{form}: {found:?}");
    }
}

#[test]
fn those_that_wait() {
    let room = Room::new("waits");
    let (gate, tally) = (room.file("gate"), room.file("tally"));
    let mut slow = room.employ(&format!("slow --gate {} --tally {} 3", gate.display(), tally.display()));
    assert_eq!(text(&slow), "line 1\n");
    assert!(!slow.has_ended());
    open(&gate);
    assert_eq!((text(&slow).as_str(), slow.end().code()), ("the last line\n", Some(3)));
    assert_eq!(fs::read_to_string(tally).expect("it counted"), "begin\nend\n");

    let mut job = room.employ(&format!("tells-progress --gates {}", room.file("step-").display()));
    assert_eq!((text(&job).as_str(), text(&job).as_str()), ("starting\n", "[INFO] Progress: 25%\n"));
    (0..3).for_each(|number| open(&room.file(&format!("step-{number}"))));
    assert!(job.end().success());

    let (mut other, file) = (ZooClient::meet("lingers"), room.file("pid"));
    let mut survivor = room.employ(&format!("outlives-its-starter --pid-file {}", file.display()));
    assert_eq!(text(&survivor), "it lives\n");
    fs::write(&file, format!("{}\n", other.pid())).expect("the temporary folder can be written");
    signal(other.pid(), Signal::KILL);
    other.end();
    assert_eq!((text(&survivor).as_str(), survivor.end().code()), ("it has died\n", Some(42)));
}

#[test]
fn only_a_kill_ends_the_deaf() {
    let room = Room::new("deaf");
    let mut deaf = room.employ("ignores-every-signal");
    assert_eq!(text(&deaf), "deaf\n");
    for number in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::ALARM] {
        signal(deaf.pid(), number);
    }
    assert!(!deaf.has_ended());
    signal(deaf.pid(), Signal::KILL);
    assert_eq!(deaf.end().signal(), Some(9));
}

#[test]
fn children_hold_the_outputs_and_go_on() {
    let room = Room::new("children");
    let marker = marker("children-print");
    let mut parent = room.employ(&format!("children-print --marker {marker}"));
    assert_eq!(parent.end().code(), Some(7));
    // One that has just been started has no command line for a moment.
    wait_until("both children", || Some(marked("chatters", &marker)).filter(|found| found.len() == 2));
    let goes_on = (0..100).all(|_| parent.line().is_some());
    assert!(goes_on, "they print on");
    clear(&marker);
}

/// The left column of the table of survivors: what a kill of the process group leaves of seven ways to stay.
#[test]
fn of_seven_ways_to_stay_a_kill_of_the_group_ends_one() {
    for (way, survives) in [
        ("child", false),
        ("session", true),
        ("daemon", true),
        ("closed", true),
        ("nested", true),
        ("deaf", true),
        ("forks", true),
    ] {
        let (room, marker) = (Room::new(way), marker(way));
        let mut job = room.employ(&format!("leaves-behind {way} --marker {marker}"));
        let group = i32::try_from(job.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        assert_eq!(job.end().code(), Some(7), "{way}");
        // Where nobody is left in the group there is nobody to kill.
        let _ = kill_process_group(group, Signal::TERM);
        let left = || !marked("lingers", &marker).is_empty() || !marked("hops", &marker).is_empty();
        wait_until(&format!("what is left of `{way}`"), || (left() == survives).then_some(()));
        clear(&marker);
    }
}
