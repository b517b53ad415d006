//! How a lifeline leaves its owner's chain of parents: clients end a server by walking down that chain, and a job must outlive that.
//!
//! Theory of operation: the owner's child forks and exits at once, so its copy comes to the nearest subreaper above the owner, which is the
//! first process at the latest. The copy divides itself ([`divide`]): one half is the lifeline, and the other one is its watcher. If the
//! lifeline is killed, everything that it held comes to the watcher, which ends it. Without a watcher it would come to a stranger. The
//! watcher also starts the supervisors of jobs that programs below the lifeline submit ([`StartRequests`]).
//!
//! Invariants
//! - After [`Commons::wait`], the other two processes have closed everything that the three had in common.
//! - What cannot be done is left out: a process that cannot be copied is the lifeline itself, where it is.
//! - Nothing here runs for longer than a fork, except the watcher, which ends after its lifeline.

use std::{
    ffi::CString,
    io::{self, Read},
    ops::Range,
    os::{fd::AsFd, unix::net::UnixStream},
};

use rustix::process::{getppid, setsid};

use crate::{
    identity::Identity,
    inherited::{leave_folder, leave_streams},
    lifeline_process::DetachedLifeline,
    outside::StartRequests,
    spawn::Exit,
    surroundings::WATCHER_NAME,
    survivors::end_orphans,
    system,
    watch::{ForkSide, WatchedCopy, divide},
};

/// The part that a process plays after the detachment.
pub(super) enum Part {
    /// The lifeline; `None` if it is where its owner has started it.
    Lifeline(Option<(DetachedLifeline, Commons)>),
    /// The watcher of the lifeline.
    Watcher(Watcher),
    /// The process that the owner has started, whose work is done.
    Launcher,
}

/// The process above a lifeline.
pub(super) struct Watcher {
    copy: WatchedCopy,
    /// It closes when this process has nothing in common with the lifeline any more.
    in_common: UnixStream,
}

/// Makes three processes of this one, or leaves it as it is. For a program without threads, before it starts anything.
pub(super) fn detach() -> io::Result<Part> {
    // Without a process table nobody could tell this lifeline from another process later.
    if Identity::own().is_none() || !system::has_one_thread() {
        return Ok(Part::Lifeline(None));
    }
    let (left, in_common) = UnixStream::pair()?;
    let name = CString::new(WATCHER_NAME).unwrap_or_default();
    match system::fork() {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(Part::Launcher),
        Err(_) => return Ok(Part::Lifeline(None)),
    }
    // A process that was just forked leads no group, and only the leader of a group could be refused.
    let _ = setsid();
    let is_watched = match divide(&name) {
        Ok(ForkSide::Watcher(copy)) => return Ok(Part::Watcher(Watcher { copy, in_common })),
        Ok(ForkSide::Copy) => true,
        Err(_) => false,
    };
    drop(in_common);
    let lifeline = Identity::own().ok_or(io::ErrorKind::NotFound)?;
    let parent = getppid().filter(|_| is_watched);
    let watcher = parent.and_then(|parent| Identity::of(parent.as_raw_nonzero().get().unsigned_abs()));
    Ok(Part::Lifeline(Some((DetachedLifeline { lifeline, watcher }, Commons(left)))))
}

/// What the three processes have in common, as long as another one has it too.
pub(super) struct Commons(UnixStream);

impl Commons {
    /// Waits until the other two have let go, which they are about to do when this process begins to run.
    pub(super) fn wait(mut self) -> io::Result<()> {
        self.0.read_to_end(&mut Vec::new()).map(drop)
    }
}

impl Watcher {
    /// Waits for the end of the lifeline, and ends what it has left if it was killed. The caller has closed the link and what it inherited.
    pub(super) fn watch(self, code: &[Range<usize>]) -> io::Result<()> {
        leave_streams()?;
        leave_folder();
        // The server runs when nothing is in common any more, and whatever it runs can ask from then on.
        let requests = StartRequests::listen();
        drop(self.in_common);
        system::give_back_mappings(code);
        // Without a socket or a handle, supervisors of jobs below the lifeline start there, and end with it.
        if let (Ok(requests), Ok(end)) = (requests, self.copy.end()) {
            requests.answer_until(end.as_fd());
        }
        // A lifeline that ends by itself has swept, or has said what it could not end.
        if matches!(self.copy.wait(), Exit::Signal(_) | Exit::Unknown) {
            let _told_by_the_owner = end_orphans();
        }
        Ok(())
    }
}
