//! How much is logged: the levels of the protocol, which are those of syslog (RFC 5424).

/// A level; the lowest says most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

use Level::*;

const NAMES: [(Level, &str); 8] = [
    (Debug, "debug"),
    (Info, "info"),
    (Notice, "notice"),
    (Warning, "warning"),
    (Error, "error"),
    (Critical, "critical"),
    (Alert, "alert"),
    (Emergency, "emergency"),
];

impl Level {
    /// The level of this name.
    pub fn named(name: &str) -> Option<Level> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }

    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_names_and_their_order() {
        for (level, name) in NAMES {
            assert_eq!((Level::named(name), level.name()), (Some(level), name));
        }
        assert!(NAMES.is_sorted() && Level::named("verbose").is_none());
    }
}
