//! The address of a gateway that runs, as it says in its log.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::clock;
use crate::failure::ChoreFailure;

/// The time until the gateway says where it is.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The words before the address.
const ADDRESS: &str = "MCP is at ";

/// Waits until a gateway says in this file where it is. Returns the URL of its `/mcp`.
///
/// # Errors
/// Fails if it does not say so in time.
pub(crate) fn until_named(log: &Path) -> Result<String, ChoreFailure> {
    let mut found = None;
    clock::wait_until(START_LIMIT, || {
        found = fs::read_to_string(log).ok().and_then(|text| named(&text).map(str::to_owned));
        found.is_some()
    });
    found.ok_or_else(|| ChoreFailure::new("the gateway did not say where it is").with_output(log))
}

/// The address that the gateway names in a line of its own.
fn named(text: &str) -> Option<&str> {
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.into_iter().find_map(|line| line.split_once(ADDRESS)).map(|(_, url)| url.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_once_its_line_is_whole() {
        assert_eq!(named("2 jobs\nunhang: MCP is at http://127.0.0.1:4"), None);
        assert_eq!(named("unhang: MCP is at http://127.0.0.1:47/mcp\nx\n"), Some("http://127.0.0.1:47/mcp"));
    }
}
