//! `unhang demo` that is broken off.

use std::{fs, path::Path};

use rustix::process::Signal;

use crate::harness::{Client, PATIENCE, Sandbox, wait_until};

/// The folders of this demonstration.
fn folders(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_demonstration_that_is_broken_off_leaves_nothing_behind() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = Sandbox::with_jobs();
        let folder = sandbox.path().join("temporary");
        fs::create_dir(&folder).expect("a folder");
        let mut command = sandbox.unhang();
        command.arg("demo").env("TMPDIR", &folder);
        let mut client = Client::start(command);
        wait_until("an act that keeps something", PATIENCE, || folders(&folder) > 0);
        client.signal(signal);
        assert_eq!(client.exit_code(), code, "{}", client.stderr());
        assert_eq!(folders(&folder), 0);
        sandbox.assert_nothing_left();
    }
}
