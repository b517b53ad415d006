//! What is said of folders that nobody could understand, by the commands that tell of all jobs.

use unhang::jobs::engine::{Engine, Quarantined};
use unhang_terminal::{output, text::escaped};

use crate::commands::engine::counted;

/// Folders that are named; of more, only how many there are.
const MOST: usize = 10;

/// Names the folders in quarantine on stderr, where there are some.
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
