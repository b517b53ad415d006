//! What a lifeline keeps for the time after its owner: the server's ends of pipes, their journals, and the command of a holder.
//!
//! Invariants: nothing of it is read or written here. The command stays in its file until it is needed, so a lifeline stays small.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::io::Errno;

use crate::{
    identity::Identity,
    ladder::StopTimeouts,
    server::hand_over::{HandOverWords, HolderCommand, STREAMS, words},
    spawn::{Environment, Launch, spawn},
};

/// The number of descriptors that an owner sends.
pub(super) const SENT: usize = STREAMS + 1;

/// What one message of the owner has brought.
#[derive(Debug)]
pub(super) struct Kept {
    command: OwnedFd,
    streams: [OwnedFd; STREAMS],
}

impl Kept {
    /// Takes the descriptors in the order in which the owner has sent them. Fails if some are missing: the system drops them if too many
    /// files are open here.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> Result<Self, Errno> {
        let mut descriptors = descriptors.into_iter();
        let command = descriptors.next().ok_or(Errno::MFILE)?;
        let streams = descriptors.collect::<Vec<_>>().try_into().map_err(|_| Errno::MFILE)?;
        Ok(Self { command, streams })
    }

    /// Starts the holder, and returns the link to it. It is a child of our parent and not of ours: the sweep of the server's tree must not
    /// find it, nor what it starts.
    pub(super) fn start_holder(self, stop_timeouts: StopTimeouts) -> io::Result<OwnedFd> {
        let holder = HolderCommand::read(&self.command)?;
        let (near, far) = UnixStream::pair()?;
        let [input, output, error, input_journal, output_journal] = &self.streams;
        let kept = [
            far.as_fd(),
            input.as_fd(),
            output.as_fd(),
            error.as_fd(),
            input_journal.as_fd(),
            output_journal.as_fd(),
        ];
        let hand_over = HandOverWords {
            lifeline: Identity::own().ok_or(io::ErrorKind::Unsupported)?,
            stop_timeouts,
            descriptors: kept.map(|descriptor| descriptor.as_raw_fd()),
        };
        let arguments: Vec<_> = holder.arguments.into_iter().chain(words(&hand_over)).collect();
        spawn(Launch {
            environment: &Environment::Exactly(holder.environment),
            folder: Some(&holder.folder),
            kept: &kept,
            is_sibling: true,
            ..Launch::new(&holder.program, &arguments)
        })?;
        Ok(near.into())
    }
}
