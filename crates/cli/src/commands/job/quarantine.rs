//! Messages about job folders that nobody could understand, for the commands that tell of all jobs.

use unhang::jobs::engine::{Engine, Quarantined};
use unhang_terminal::{output, text::escaped};

use crate::commands::engine::counted;

/// The number of folders that are named; the rest is only counted.
const MOST: usize = 10;

/// Lists the folders in quarantine on stderr, if there are any.
pub(super) async fn tell(engine: &Engine) {
    let found = match engine.quarantined().await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("{error}");
            return;
        }
    };
    for Quarantined { folder, reason } in found.iter().take(MOST) {
        let folder = folder.to_string_lossy();
        output::error(&escaped(&format!("in quarantine: {folder}: {reason}")), None);
    }
    if found.len() > MOST {
        let more = counted(found.len() - MOST, "folder");
        output::error(&format!("in quarantine: {more} more"), None);
    }
}
