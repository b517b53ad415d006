//! What passes from an owner through the lifeline to a holder: the command of the holder, and the server's descriptors.
//!
//! The owner writes the command into a file in memory and sends it with the descriptors ([`keep`]). When the owner has gone, the lifeline
//! starts the command and appends words that name the descriptors ([`words`]). The holder parses them ([`HandOver::parse`]).
//!
//! Invariants
//! - The first appended word is the format. A holder that knows another format reads nothing else and says so.
//! - A command is read back as it was written, or refused. It has a limit ([`LONGEST_COMMAND`]).

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::{
    io::{pread, pwrite},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

use super::command;
use crate::{identity::Identity, inherited::adopt, ladder::StopTimeouts, system};

/// The format of the words that a lifeline appends. It changes with their meaning and with the layout of a journal.
pub const FORMAT: u32 = 2;

/// The longest command with its environment: the most that Linux lets a program have (a quarter of the usual stack of 8 MiB).
pub const LONGEST_COMMAND: usize = 2 << 20;

/// The number of the server's descriptors in a hand-over.
pub(crate) const STREAMS: usize = 5;

/// The program that a lifeline starts when the owner of its server has gone. It has a session of its own and the null device for its
/// standard streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderCommand {
    /// The file to execute. `/proc/self/exe` is the file that the lifeline runs.
    pub program: PathBuf,
    /// Its arguments. The lifeline appends words of its own, which [`HandOver::parse`] reads.
    pub arguments: Vec<OsString>,
    /// All variables of its environment. The lifeline itself has those of the server.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub folder: PathBuf,
}

impl HolderCommand {
    /// Writes the command down: texts that each end with a zero byte, namely the program, the folder, the number of arguments, the arguments
    /// and the variables.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut add = |parts: &[&OsStr]| {
            let begun = bytes.len();
            parts.iter().for_each(|part| bytes.extend(part.as_bytes()));
            let has_zero = bytes.iter().skip(begun).any(|&byte| byte == 0);
            bytes.push(0);
            has_zero
        };
        let count = OsString::from(self.arguments.len().to_string());
        let mut has_zero =
            add(&[self.program.as_os_str()]) | add(&[self.folder.as_os_str()]) | add(&[&count]);
        for argument in &self.arguments {
            has_zero |= add(&[argument]);
        }
        for (name, value) in &self.environment {
            has_zero |= add(&[name, OsStr::new("="), value]) || name.as_bytes().contains(&b'=');
        }
        let refused = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()));
        if has_zero {
            return refused("the command of a holder has a zero byte, or a variable with `=` in its name");
        }
        if bytes.len() > LONGEST_COMMAND {
            return refused("the command of a holder and its environment are longer than 2 MiB");
        }
        Ok(bytes)
    }

    /// Reads a command back; `None` if it makes no sense.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let texts = bytes.strip_suffix(&[0])?.split(|&byte| byte == 0);
        let mut texts = texts.map(|text| OsString::from_vec(text.to_vec()));
        let (program, folder) = (texts.next()?.into(), texts.next()?.into());
        let count: usize = texts.next()?.to_str()?.parse().ok()?;
        let arguments: Vec<OsString> = texts.by_ref().take(count).collect();
        let variable = |text: OsString| {
            let end = text.as_bytes().iter().position(|&byte| byte == b'=')?;
            let (name, value) = (text.as_bytes().get(..end)?, text.as_bytes().get(end + 1..)?);
            Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
        };
        let is_whole = arguments.len() == count;
        let environment = texts.map(variable).collect::<Option<_>>()?;
        is_whole.then_some(Self { program, arguments, environment, folder })
    }

    /// Reads a command from a file that [`keep`] has made. The file is read when it is needed, so it takes no memory of a lifeline before.
    pub(crate) fn read(file: &OwnedFd) -> io::Result<Self> {
        let mut bytes = vec![0; LONGEST_COMMAND];
        let mut length = 0;
        while let count @ 1.. = pread(file, bytes.get_mut(length..).unwrap_or_default(), length as u64)? {
            length += count;
        }
        bytes.truncate(length);
        Self::decode(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Sends a lifeline the command of a holder with the server's stdin, stdout and stderr and the journals of the first two.
pub(super) fn keep(
    link: &OwnedFd,
    holder: &HolderCommand,
    streams: [BorrowedFd<'_>; STREAMS],
) -> io::Result<()> {
    let bytes = holder.encode()?;
    let file = system::memory_file(c"mcp-holder")?;
    let mut length = 0;
    while let Some(left) = bytes.get(length..).filter(|left| !left.is_empty()) {
        length += pwrite(&file, left, length as u64)?;
    }
    let [input, output, error, input_journal, output_journal] = streams;
    let descriptors = [file.as_fd(), input, output, error, input_journal, output_journal];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS + 1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | system::NO_SIGNAL;
    // One byte goes out whole or not at all.
    sendmsg(link, &[IoSlice::new(&[command::KEEP])], &mut ancillary, flags)?;
    Ok(())
}

/// What the appended words say.
#[derive(Debug)]
pub(crate) struct HandOverWords {
    pub(crate) lifeline: Identity,
    pub(crate) stop_timeouts: StopTimeouts,
    /// The link to the lifeline, and the server's descriptors in the order of [`keep`].
    pub(crate) descriptors: [RawFd; STREAMS + 1],
}

/// Returns the words that a lifeline appends to the arguments of a holder.
pub(crate) fn words(hand_over: &HandOverWords) -> [OsString; 4] {
    let Identity { pid, start } = hand_over.lifeline;
    let StopTimeouts { grace, limit } = hand_over.stop_timeouts;
    let descriptors: Vec<String> = hand_over.descriptors.iter().map(ToString::to_string).collect();
    [
        format!("--hand-over={FORMAT}"),
        format!("--lifeline={pid}:{start}"),
        format!("--stop={}:{}", grace.as_millis(), limit.as_millis()),
        format!("--descriptors={}", descriptors.join(":")),
    ]
    .map(Into::into)
}

/// Why a holder cannot take a server over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Another version of unhang has handed the server over.
    #[error(
        "the server was handed over in format {given}, and this program reads format {FORMAT}: they are different \
         versions of unhang, and the lifeline ends the server"
    )]
    Format {
        /// The format of the words.
        given: String,
    },
    /// The words are not those of a lifeline.
    #[error("this is no hand-over of a server (missing or wrong: `{word}`); only a lifeline starts a holder")]
    Words {
        /// The word that is missing or makes no sense.
        word: &'static str,
    },
    /// The system refuses a step.
    #[error("{action} of the server that was handed over failed: {source}")]
    System {
        /// The step.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A server that a lifeline hands over, for [`Server::resume`](super::Server::resume).
#[derive(Debug)]
pub struct HandOver {
    pub(super) lifeline: Identity,
    pub(super) stop_timeouts: StopTimeouts,
    pub(super) link: OwnedFd,
    pub(super) streams: [OwnedFd; STREAMS],
}

impl HandOver {
    /// Returns the lifeline of the server.
    #[must_use]
    pub fn lifeline(&self) -> Identity {
        self.lifeline
    }

    /// Returns a second end of the link. As long as it is open, the lifeline stays, whatever becomes of the server: whoever asks for the
    /// keeper of a call then sees that it lives.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn hold_lifeline(&self) -> io::Result<OwnedFd> {
        self.link.try_clone()
    }

    /// Takes the descriptors that the words name; `words` are those after the arguments of the [`HolderCommand`]. A program calls this once,
    /// before it opens anything.
    ///
    /// # Errors
    /// Fails if the format is another one, if the words make no sense, or if there is no such descriptor.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Self, ResumeError> {
        let words = parse_words(words)?;
        let mut taken = Vec::with_capacity(STREAMS + 1);
        for number in words.descriptors {
            taken.push(
                adopt(number)
                    .map_err(|source| ResumeError::System { action: "taking descriptors", source })?,
            );
        }
        let mut taken = taken.into_iter();
        let (Some(link), Ok(streams)) = (taken.next(), taken.collect::<Vec<_>>().try_into()) else {
            return Err(ResumeError::Words { word: "--descriptors" });
        };
        Ok(Self { lifeline: words.lifeline, stop_timeouts: words.stop_timeouts, link, streams })
    }
}

fn parse_words(mut words: impl Iterator<Item = OsString>) -> Result<HandOverWords, ResumeError> {
    let mut value = |word: &'static str| {
        let text = words.next().and_then(|text| text.into_string().ok());
        let value = text.and_then(|text| Some(text.strip_prefix(word)?.strip_prefix('=')?.to_owned()));
        value.ok_or(ResumeError::Words { word })
    };
    let given = value("--hand-over")?;
    if given != FORMAT.to_string() {
        return Err(ResumeError::Format { given });
    }
    let lifeline = numbers(&value("--lifeline")?)
        .and_then(|[pid, start]| Some(Identity { pid: u32::try_from(pid).ok()?, start }));
    let stop_timeouts = numbers(&value("--stop")?).map(|[grace, limit]| StopTimeouts {
        grace: Duration::from_millis(grace),
        limit: Duration::from_millis(limit),
    });
    let descriptors = numbers(&value("--descriptors")?);
    let wrong = |word| ResumeError::Words { word };
    let descriptors: [u64; STREAMS + 1] = descriptors.ok_or(wrong("--descriptors"))?;
    let is_twice = |(index, number)| descriptors.iter().skip(index + 1).any(|other| other == number);
    if descriptors.iter().enumerate().any(is_twice) {
        // Each number has one owner here.
        return Err(wrong("--descriptors"));
    }
    Ok(HandOverWords {
        lifeline: lifeline.ok_or(wrong("--lifeline"))?,
        stop_timeouts: stop_timeouts.ok_or(wrong("--stop"))?,
        // A number that does not fit is no descriptor, and is refused as such.
        descriptors: descriptors.map(|number| RawFd::try_from(number).unwrap_or(-1)),
    })
}

/// Parses numbers with colons between them, if there are exactly as many.
fn numbers<const COUNT: usize>(text: &str) -> Option<[u64; COUNT]> {
    text.split(':').map(|number| number.parse().ok()).collect::<Option<Vec<_>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> HolderCommand {
        HolderCommand {
            program: "/proc/self/exe".into(),
            arguments: ["hold", "", "with blanks\n"].map(Into::into).into(),
            environment: vec![("A".into(), "1=2".into()), ("EMPTY".into(), "".into())],
            folder: "/a folder".into(),
        }
    }

    #[test]
    fn a_command_is_read_back_as_it_was_written() {
        let nothing = HolderCommand { arguments: Vec::new(), environment: Vec::new(), ..holder() };
        for command in [holder(), nothing] {
            assert_eq!(HolderCommand::decode(&command.encode().unwrap()), Some(command));
        }
        let bytes = holder().encode().unwrap();
        for end in 0..bytes.len() {
            // A command that was cut is never taken for a whole one, except between two variables.
            let read = HolderCommand::decode(&bytes[..end]);
            assert!(read.is_none_or(|read| read.arguments == holder().arguments), "{end}");
        }
    }

    #[test]
    fn what_cannot_be_written_down_is_refused() {
        let zero = HolderCommand { arguments: vec!["a\0b".into()], ..holder() };
        let name = HolderCommand { environment: vec![("A=B".into(), "".into())], ..holder() };
        let long = HolderCommand { arguments: vec!["x".repeat(LONGEST_COMMAND).into()], ..holder() };
        for command in [zero, name, long] {
            assert_eq!(command.encode().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_words_say_what_was_said() {
        let hand_over = HandOverWords {
            lifeline: Identity { pid: 7, start: 8 },
            stop_timeouts: StopTimeouts { grace: Duration::from_secs(1), limit: Duration::from_secs(3) },
            descriptors: [10, 11, 12, 13, 14, 15],
        };
        let read = parse_words(words(&hand_over).into_iter()).unwrap();
        assert_eq!(
            (read.lifeline, read.stop_timeouts, read.descriptors),
            (hand_over.lifeline, hand_over.stop_timeouts, hand_over.descriptors)
        );
    }

    #[test]
    fn another_version_is_refused_before_anything_else_is_read() {
        let words = ["--hand-over=1", "--something-old"].map(OsString::from);
        let error = HandOver::parse(words.into_iter()).unwrap_err();
        assert!(matches!(&error, ResumeError::Format { given } if given == "1"), "{error}");
        assert!(error.to_string().contains("format 2") && error.to_string().contains("format 1"), "{error}");
    }

    #[test]
    fn words_that_make_no_sense_are_refused_and_named() {
        let good = ["--hand-over=2", "--lifeline=1:2", "--stop=1:2", "--descriptors=10:11:12:13:14:15"];
        for (index, bad, word) in [
            (0, "hello", "--hand-over"),
            (1, "--lifeline=1", "--lifeline"),
            (2, "--stop=x:2", "--stop"),
            (3, "--descriptors=10:11:12:13:14", "--descriptors"),
            (3, "--descriptors=10:11:12:13:14:10", "--descriptors"),
        ] {
            let mut words = good.map(OsString::from);
            words[index] = bad.into();
            let error = parse_words(words.into_iter()).unwrap_err();
            assert!(matches!(error, ResumeError::Words { word: named } if named == word), "{bad}: {error}");
        }
    }
}
