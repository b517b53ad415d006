//! How much of the disk the log of a job takes that writes as fast as it can.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use unhang_demo_servers::bounded_waits;

use super::jobs_folder::JobsFolder;
use super::server::LoadServer;
use super::{LogUse, TOGETHER, go_on};

/// Between two looks at the logs: at 2 GB a second, a mebibyte is written meanwhile.
const LOOK: Duration = Duration::from_micros(500);
/// How long the flood may take.
const LIMIT: Duration = Duration::from_secs(110);
/// The unit of the blocks that a file has, whatever those of its file system are.
const BLOCK: u64 = 512;

/// Lets a job write so many bytes to each of its streams, and watches its logs.
pub(super) fn watch(jobs_folder: &JobsFolder, bytes: u64) -> io::Result<LogUse> {
    let mut server = LoadServer::start(jobs_folder, "log", TOGETHER)?;
    let (job, _) = server.submit("floods", &format!("{{\"bytes\": {bytes}}}"))?;
    let folder = jobs_folder.path("log").join("jobs").join(&job);
    let (logs, end) =
        (["stdout.log", "stderr.log"].map(|log| folder.join(log)), bounded_waits::now() + LIMIT);
    let mut peak = 0;
    while !folder.join("exit.json").exists() && bounded_waits::now() < end {
        go_on()?;
        peak = logs.iter().map(|log| allocated(log)).fold(peak, u64::max);
        bounded_waits::pause(LOOK);
    }
    server.expect_completed(std::slice::from_ref(&job))?;
    let results = server.results(&job)?;
    let ends_with =
        |tail: &str, line: &str| results[tail].as_str().is_some_and(|text| text.trim_end().ends_with(line));
    let has_last_line = ends_with("stdout_tail", "\nthe last line of stdout")
        && ends_with("stderr_tail", "\nthe last line of stderr");
    let written: u64 = logs.iter().filter_map(|log| fs::metadata(log).ok()).map(|log| log.len()).sum();
    server.close()?;
    if written < 2 * bytes {
        return Err(io::Error::other(format!("{written} bytes were written instead of {}", 2 * bytes)));
    }
    Ok(LogUse { peak, has_last_line })
}

/// What a file takes of the disk, which is not its length; nothing where it is not there yet.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.blocks() * BLOCK)
}
