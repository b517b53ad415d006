//! Servers of the zoo over HTTP, as tests see them: where they are, and what has reached them.
//!
//! Invariants: one ends with its test; nothing waits without a limit.

use std::{cell::RefCell, time::Duration};

use serde_json::Value;

use super::{Client, PATIENCE, Sandbox, wait_until};

/// A server over HTTP that runs.
pub(crate) struct Remote {
    pub(crate) url: String,
    process: RefCell<Client>,
    seen: RefCell<Vec<Value>>,
}

impl Remote {
    /// Starts one.
    #[track_caller]
    pub(crate) fn start(sandbox: &Sandbox, faulty_server: &[&str]) -> Remote {
        let mut process = sandbox.bare(faulty_server);
        let url = process.next_line(PATIENCE).expect("it says where it is").trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Remote { url, process: RefCell::new(process), seen: RefCell::default() }
    }

    /// What has reached it so far.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let (mut process, mut seen) = (self.process.borrow_mut(), self.seen.borrow_mut());
        while let Some(line) = process.next_line(Duration::ZERO) {
            seen.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")));
        }
        seen.clone()
    }

    /// The requests among it.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.seen().into_iter().filter(|seen| seen["did"] == "asked").collect()
    }

    /// How much of it fits.
    pub(crate) fn count(&self, fits: impl Fn(&Value) -> bool) -> usize {
        self.seen().iter().filter(|seen| fits(seen)).count()
    }

    /// The first of it that fits, once it is there.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, PATIENCE, || self.count(&fits) > 0);
        self.seen().into_iter().find(fits).expect("it was there")
    }
}
