//! The questions that calls wait with, for processes that do not hold the calls.
//!
//! Theory of operation. Only the holder of a call can answer its server. It writes the open questions into the folder of the job, and looks
//! there for replies. Any process on the data folder can read the questions, and leave a reply to each.
//!
//! ```text
//! holder ─ questions.json ─► another process ─► its client
//! server ◄─ holder ◄─ answer-<key> (the first one stays) ◄─┘
//! ```
//!
//! Invariants
//!
//! - Questions count only as those of the holder that the record names, so nobody answers what an earlier holder has asked.
//! - Files have limits, and a file that is damaged or no file at all stops nothing: the holder writes it anew, or puts it aside.
//! - The files end with the questions, at the latest with the job.

use std::{ffi::OsString, fs, io};

use serde::{Deserialize, Serialize};

use crate::{
    folder::{FileError, JobFolder, to_json},
    record::Holder,
};

/// The file with the open questions of a call.
const QUESTIONS: &str = "questions.json";

/// The beginning of the name of a file with the reply to a question.
const ANSWER: &str = "answer-";

/// The most bytes of the open questions of a call, and of a reply to one of them.
pub const QUESTIONS_LIMIT: usize = 1 << 20;

/// The most bytes of a file that are read. As a JSON string, a text of JSON has at most twice its bytes, and a few for each question.
const FILE_LIMIT: usize = 3 * QUESTIONS_LIMIT;

/// The most bytes of the name of a question.
const KEY_LIMIT: usize = 64;

/// A question that a call waits with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallQuestion {
    /// Its name, unique within the job: ASCII letters, digits and hyphens.
    pub key: String,
    /// The method of the server's request.
    pub method: String,
    /// The params of the request, as JSON.
    pub params: Option<String>,
}

impl CallQuestion {
    /// Returns whether the key can be a part of a file name.
    fn is_named_well(&self) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=KEY_LIMIT).contains(&self.key.len()) && self.key.bytes().all(is_plain)
    }

    fn length(&self) -> usize {
        self.method.len() + self.params.as_ref().map_or(0, String::len)
    }
}

/// The content of [`QUESTIONS`].
#[derive(Serialize, Deserialize)]
struct ShownQuestions {
    /// The process that has asked.
    holder: Holder,
    questions: Vec<CallQuestion>,
}

/// Removes the questions and the replies from a folder, as far as the system allows.
pub(crate) fn remove_questions(folder: &JobFolder) {
    if folder.is_something_else() {
        return;
    }
    for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
        let is_one = |name: &str| {
            // The unfinished files of a killed process have the same names behind a dot.
            let name = name.strip_prefix('.').unwrap_or(name);
            name.starts_with(QUESTIONS) || name.starts_with(ANSWER)
        };
        if entry.file_name().to_str().is_some_and(is_one) {
            let _left = fs::remove_file(entry.path());
        }
    }
}

/// Shows the open questions of the holder of a call in the folder, and takes the replies that others have left. Returns keys and replies.
/// Questions over the limit are left out.
pub(crate) fn show(
    folder: &JobFolder,
    holder: Holder,
    mut questions: Vec<CallQuestion>,
) -> Result<Vec<(String, String)>, FileError> {
    let mut room = QUESTIONS_LIMIT;
    questions.retain(|question| {
        let fits = question.is_named_well() && question.length() <= room;
        room -= if fits { question.length() } else { 0 };
        fits
    });
    if questions.is_empty() {
        remove_questions(folder);
        return Ok(Vec::new());
    }
    let left = left_answers(folder)?;
    let replies: Vec<_> = left.iter().filter_map(|key| reply_to(folder, key, &questions)).collect();
    questions.retain(|question| replies.iter().all(|(key, _)| *key != question.key));
    let shown = ShownQuestions { holder, questions };
    // A file that somebody has damaged is written anew.
    let written = folder.restore(QUESTIONS, &to_json(&shown));
    for key in left {
        let name = answer_file(&key);
        // A folder with this name would block the next answer, so it gets another name.
        if let Err(error) = folder.remove_file(&name).or_else(|_| folder.put_aside(&name)) {
            tracing::warn!("{error}");
        }
    }
    match written {
        Err(error) if replies.is_empty() => Err(error),
        // The files of the replies are gone, so only the caller has them now.
        _ => Ok(replies),
    }
}

/// Returns the keys under which somebody has left an answer.
fn left_answers(folder: &JobFolder) -> Result<Vec<String>, FileError> {
    let entries = match fs::read_dir(folder.path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| FileError::system("cannot read", folder.path(), error))?,
    };
    let key = |name: OsString| Some(name.to_str()?.strip_prefix(ANSWER)?.to_owned());
    let keys = entries.flatten().filter_map(|entry| key(entry.file_name()));
    // A name with a dot is that of a thing that was put aside.
    Ok(keys.filter(|key| !key.contains('.')).collect())
}

/// Reads the reply to one of these questions; `None` if it is no such reply.
fn reply_to(folder: &JobFolder, key: &str, questions: &[CallQuestion]) -> Option<(String, String)> {
    if questions.iter().all(|question| question.key != key) {
        return None;
    }
    let text = folder.text(&answer_file(key), FILE_LIMIT).and_then(|text| serde_json::from_str(&text).ok());
    if text.is_none() {
        tracing::warn!("{} is damaged", folder.file(&answer_file(key)).display());
    }
    Some((key.to_owned(), text?))
}

/// Returns the questions in the folder that this holder has asked and nobody has answered yet.
pub(crate) fn read(folder: &JobFolder, holder: &Holder) -> Vec<CallQuestion> {
    let text = folder.text(QUESTIONS, FILE_LIMIT);
    let shown = text.and_then(|text| serde_json::from_str::<ShownQuestions>(&text).ok());
    let shown = shown.filter(|shown| shown.holder == *holder);
    let mut questions = shown.map_or_else(Vec::new, |shown| shown.questions);
    // What was answered waits for the holder to take the answer.
    questions.retain(|question| question.is_named_well() && !folder.has(&answer_file(&question.key)));
    questions
}

/// Leaves a reply to one of these questions in the folder, unless there is one. Returns false if there is no such question, or the reply is
/// over the limit.
pub(crate) fn answer(
    folder: &JobFolder,
    questions: &[CallQuestion],
    key: &str,
    reply: &str,
) -> Result<bool, FileError> {
    if reply.len() > QUESTIONS_LIMIT {
        let length = reply.len();
        tracing::warn!("an answer of {length} bytes exceeds the limit of {QUESTIONS_LIMIT} bytes");
        return Ok(false);
    }
    let is_open = questions.iter().any(|question| question.key == key);
    if is_open {
        folder.write_if_missing(&answer_file(key), &reply)?;
    }
    Ok(is_open)
}

fn answer_file(key: &str) -> String {
    format!("{ANSWER}{key}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::{NOBODY, TestFolder};

    fn question(key: &str) -> CallQuestion {
        CallQuestion {
            key: key.to_owned(),
            method: "elicitation/create".to_owned(),
            params: Some("{}".to_owned()),
        }
    }

    fn holder(boot: &str) -> Holder {
        Holder { boot_id: boot.to_owned(), process: NOBODY }
    }

    /// The folder of a job, with one open question of one holder.
    fn asked() -> (TestFolder, JobFolder) {
        let test = TestFolder::new();
        let folder = test.data.job(crate::id::JobId::random().unwrap());
        folder.create().unwrap();
        assert_eq!(show(&folder, holder("one"), vec![question("q-1")]).unwrap(), []);
        (test, folder)
    }

    fn files(folder: &JobFolder) -> usize {
        fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn the_first_answer_to_an_open_question_of_the_holder_counts() {
        let (_test, folder) = asked();
        assert_eq!(read(&folder, &holder("two")), [], "another holder has asked it");
        let open = read(&folder, &holder("one"));
        assert_eq!(open, [question("q-1")]);
        assert!(!answer(&folder, &open, "q-2", "no").unwrap());
        assert!(answer(&folder, &open, "q-1", "first").unwrap());
        assert_eq!(read(&folder, &holder("one")), [], "it is answered");
        assert!(answer(&folder, &open, "q-1", "second").unwrap(), "it was open a moment ago");
        for name in [QUESTIONS, "answer-q-1"] {
            let mode = fs::metadata(folder.file(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let answered = show(&folder, holder("one"), vec![question("q-1"), question("q-2")]).unwrap();
        assert_eq!(answered, [("q-1".to_owned(), "first".to_owned())]);
        assert_eq!(read(&folder, &holder("one")), [question("q-2")]);
        assert_eq!(show(&folder, holder("one"), Vec::new()).unwrap(), []);
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn damage_stops_no_question_and_no_answer() {
        let large = "\"".to_owned() + &"x".repeat(FILE_LIMIT) + "\"";
        for damage in ["", "{", "[]", &large] {
            let (_test, folder) = asked();
            fs::write(folder.file(QUESTIONS), damage).unwrap();
            assert_eq!(read(&folder, &holder("one")), []);
            fs::write(folder.file("answer-q-1"), damage).unwrap();
            fs::write(folder.file("answer-q-9"), "\"to nothing\"").unwrap();
            assert_eq!(show(&folder, holder("one"), vec![question("q-1")]).unwrap(), []);
            assert_eq!(read(&folder, &holder("one")), [question("q-1")], "written anew");
            assert_eq!(files(&folder), 1);
        }
        let (_test, folder) = asked();
        fs::create_dir(folder.file("answer-q-1")).unwrap();
        assert_eq!(show(&folder, holder("one"), vec![question("q-1")]).unwrap(), []);
        let open = read(&folder, &holder("one"));
        assert!(answer(&folder, &open, "q-1", "\"x\"").unwrap());
        assert_eq!(show(&folder, holder("one"), vec![question("q-1")]).unwrap().len(), 1);
    }

    #[test]
    fn questions_and_answers_have_limits() {
        let (_test, folder) = asked();
        let long = CallQuestion { params: Some("x".repeat(QUESTIONS_LIMIT)), ..question("q-2") };
        let outside = question("../q");
        show(&folder, holder("one"), vec![outside, long, question("q-1")]).unwrap();
        let open = read(&folder, &holder("one"));
        assert_eq!(open, [question("q-1")]);
        assert!(!answer(&folder, &open, "q-1", &"x".repeat(QUESTIONS_LIMIT + 1)).unwrap());
        assert!(answer(&folder, &open, "q-1", &"\"".repeat(QUESTIONS_LIMIT)).unwrap());
        assert_eq!(show(&folder, holder("one"), open).unwrap().len(), 1);
    }
}
