//! A data folder with many ended jobs, beside one with a single one.
//!
//! # Theory of operation
//!
//! One job is run. Its folder is copied, each time with another id in the place of its own, until there are as many as are
//! wanted; then the database is removed, and the server makes it anew from the folders. So everything has the form that the
//! server itself has written, and nothing here knows it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::syncfs;
use unhang_demo_servers::bounded_waits;

use super::jobs_folder::JobsFolder;
use super::server::LoadServer;
use super::{EndedUse, TOGETHER, go_on, sorted};
use crate::load::samples::percentile;

/// The folder with one ended job.
const FEW: &str = "few";
/// The folder with many.
const MANY: &str = "many";
/// Polls for each submit. While the shim of the job is started, a poll finds no processor: half of all must be later ones.
const POLLS: usize = 5;
/// What the database consists of.
const DATABASE: [&str; 3] = ["unhang.db", "unhang.db-wal", "unhang.db-shm"];

/// Makes both folders, one of them with so many ended jobs.
pub(super) fn make(jobs_folder: &JobsFolder, count: usize) -> io::Result<()> {
    run_one(jobs_folder, FEW)?;
    let template = run_one(jobs_folder, MANY)?;
    let jobs = jobs_folder.path(MANY).join("jobs");
    let copied = EndedJobTemplate::read(&jobs, &template)?.copy(&jobs, count.saturating_sub(1))?;
    for file in DATABASE {
        match fs::remove_file(jobs_folder.path(MANY).join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Hundreds of thousands of files that are still to be written would be what is measured.
    syncfs(File::open(&jobs)?)?;
    let mut server = LoadServer::start_anew(jobs_folder, MANY, TOGETHER)?;
    // Were it not for this, a folder full of what is not understood would be measured.
    server.expect_completed(&[vec![template], copied].concat())?;
    server.close()
}

/// Submits to both in turn and polls in turn what was submitted; the one with few comes first.
pub(super) fn compare(jobs_folder: &JobsFolder, submits: usize) -> io::Result<(EndedUse, EndedUse)> {
    let (mut few, few_start) = started(jobs_folder, FEW)?;
    let (mut many, many_start) = started(jobs_folder, MANY)?;
    let servers = [&mut few, &mut many];
    let (mut submitted, mut polled) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    let mut jobs = [const { Vec::new() }; 2];
    for turn in 0..2 * submits {
        // Which of the two is first changes, for the second one meets what the first has left to do.
        let which = usize::from(matches!(turn % 4, 1 | 2));
        let (job, time) = servers[which].submit("trivial", "{}")?;
        submitted[which].push(time);
        for _ in 0..POLLS {
            polled[which].push(servers[which].status(&job)?.1);
        }
        jobs[which].push(job);
    }
    for (server, jobs) in servers.into_iter().zip(&jobs) {
        server.expect_completed(jobs)?;
    }
    few.close()?;
    many.close()?;
    let half = |samples: Vec<Duration>| percentile(&sorted(samples), 50);
    let ([few_submits, many_submits], [few_polls, many_polls]) = (submitted, polled);
    Ok((
        EndedUse { submit: half(few_submits), status: half(few_polls), start: few_start },
        EndedUse { submit: half(many_submits), status: half(many_polls), start: many_start },
    ))
}

fn started<'a>(jobs_folder: &'a JobsFolder, data: &str) -> io::Result<(LoadServer<'a>, Duration)> {
    let begin = bounded_waits::now();
    let server = LoadServer::start(jobs_folder, data, TOGETHER)?;
    Ok((server, begin.elapsed()))
}

/// Runs one job in this folder, and returns its id.
fn run_one(jobs_folder: &JobsFolder, data: &str) -> io::Result<String> {
    let mut server = LoadServer::start(jobs_folder, data, TOGETHER)?;
    let (job, _) = server.submit("trivial", "{}")?;
    server.expect_completed(std::slice::from_ref(&job))?;
    server.close()?;
    Ok(job)
}

/// The files of an ended job, and the folders among them.
struct EndedJobTemplate {
    id: String,
    folders: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
}

impl EndedJobTemplate {
    fn read(jobs: &Path, id: &str) -> io::Result<Self> {
        let mut template = Self { id: id.to_owned(), folders: Vec::new(), files: Vec::new() };
        template.add(&jobs.join(id), "")?;
        Ok(template)
    }

    /// Takes what lies in a folder, by its path from the job's folder.
    fn add(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                self.folders.push(path.clone());
                self.add(&entry.path(), &format!("{path}/"))?;
            } else {
                self.files.push((path, fs::read(entry.path())?));
            }
        }
        Ok(())
    }

    fn copy(&self, jobs: &Path, count: usize) -> io::Result<Vec<String>> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        for number in 0..count {
            go_on()?;
            let id = id(number);
            let folder = jobs.join(&id);
            DirBuilder::new().mode(0o700).create(&folder)?;
            for inner in &self.folders {
                DirBuilder::new().mode(0o700).create(folder.join(inner))?;
            }
            for (name, content) in &self.files {
                let content = with_other_id(content, self.id.as_bytes(), id.as_bytes());
                options.open(folder.join(name))?.write_all(&content)?;
            }
        }
        Ok(count.checked_sub(1).into_iter().flat_map(|last| [id(0), id(last)]).collect())
    }
}

/// The id of a copy: 12 of 32 letters and digits, in no order, as ids are.
fn id(number: usize) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    /// Odd, so that no two numbers come to the same.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = u64::try_from(number).unwrap_or(u64::MAX).wrapping_mul(SPREAD);
    let digit = |digit_index: u32| usize::try_from(spread >> (5 * digit_index) & 31).unwrap_or_default();
    (0..12).map(|digit_index| char::from(DIGITS[digit(digit_index)])).collect()
}

/// The content with another id, of the same length, wherever its own stands.
fn with_other_id(content: &[u8], own: &[u8], other: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    let mut start = 0;
    while let Some(found) = content[start..].windows(own.len()).position(|window| window == own) {
        content[start + found..start + found + own.len()].copy_from_slice(other);
        start += found + own.len();
    }
    content
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_all_different_and_of_the_alphabet() {
        let ids: HashSet<String> = (0..10_000).map(id).collect();
        assert_eq!(ids.len(), 10_000);
        let is_digit = |letter: char| letter.is_ascii_lowercase() || ('2'..='7').contains(&letter);
        assert!(ids.iter().all(|id| id.len() == 12 && id.chars().all(is_digit)));
    }

    #[test]
    fn an_id_is_replaced_wherever_it_stands() {
        assert_eq!(with_other_id(b"ab, xab, a", b"ab", b"cd"), b"cd, xcd, a");
        assert_eq!(with_other_id(b"", b"ab", b"cd"), b"");
    }
}
