//! A point in time in the files of a job: RFC 3339 in UTC, to the millisecond, readable by people and programs.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970. The clock is the system's, so it may jump. Displayed times depend on it, and so do the retention, the time of a
/// left call, and the time for which a starter is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobTimestamp(u64);

impl JobTimestamp {
    /// Returns the present time.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the time that lies so many milliseconds after the beginning of 1970.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this one; zero if the clock was set back in between.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for JobTimestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for JobTimestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0);
        humantime::format_rfc3339_millis(time).fmt(formatter)
    }
}

impl FromStr for JobTimestamp {
    type Err = humantime::TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(humantime::parse_rfc3339(text)?.into())
    }
}

impl TryFrom<String> for JobTimestamp {
    type Error = humantime::TimestampError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<JobTimestamp> for String {
    fn from(timestamp: JobTimestamp) -> Self {
        timestamp.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_back_as_it_was_written() {
        let timestamp = JobTimestamp::from_millis(1_774_872_000_123);
        assert_eq!(timestamp.to_string(), "2026-03-30T12:00:00.123Z");
        assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
        assert!("yesterday".parse::<JobTimestamp>().is_err());
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_time_and_no_panic() {
        let (early, late) = (JobTimestamp::from_millis(5), JobTimestamp::from_millis(7));
        assert_eq!(late.since(early), Duration::from_millis(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
