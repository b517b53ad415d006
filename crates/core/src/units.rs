//! Lengths of time and numbers of bytes, as people write and read them.
//!
//! Invariants: a value that is read has a unit, and is not zero.

use std::time::Duration;

/// The units of a length of time. Error messages list the first six. A length may be displayed with the last two, and nobody takes those
/// for others.
const UNITS: [&str; 8] = ["ms", "s", "m", "h", "d", "w", "us", "ns"];

/// Parses a length of time. A unit is required, because `30` was milliseconds in one client's file and seconds in another's (peers.md 5).
///
/// # Errors
/// Fails with a sentence about the fault in the text. It lists the units, if the unit is unknown.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // The parser knows more units: it takes `M` for a month, and most who write it mean a minute.
    let unknown = |unit: &&str| !unit.is_empty() && !UNITS.contains(unit);
    if let Some(unit) = text.split(|letter: char| !letter.is_alphabetic()).find(unknown)
        && text.trim_start().starts_with(|letter: char| letter.is_ascii_digit())
    {
        return Err(format!("unknown unit `{unit}` in `{text}`; the units are ms, s, m, h, d and w"));
    }
    match humantime::parse_duration(text) {
        Ok(length) if !length.is_zero() => Ok(length),
        Ok(_) => Err("must be longer than zero".to_owned()),
        Err(humantime::DurationError::NumberExpected(_) | humantime::DurationError::Empty) => Err(format!(
            "`{text}` is not a length of time; write a number with a unit, such as 500ms, 30s or 5m"
        )),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("needs a unit: {text}ms, {text}s or {text}m?"))
        }
        Err(humantime::DurationError::NumberOverflow) => {
            Err(format!("`{text}` is too long, or too fine, to be counted in nanoseconds"))
        }
        Err(error) => Err(format!("{error}; write a number with a unit, such as 500ms, 30s or 5m")),
    }
}

/// Parses a number of bytes. A unit is required: `B`, `KiB`, `MiB`, `GiB` or `kB`, `MB`, `GB`.
///
/// # Errors
/// Fails with a sentence about the fault in the text. It lists the units, if the unit is unknown.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| {
        format!("`{text}` is not a size; write a whole number with a unit, such as 64KiB or 16MiB")
    })?;
    let factor: u64 = match unit.trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "" => return Err(format!("needs a unit: {number}B, {number}KiB or {number}MiB?")),
        other => {
            return Err(format!("unknown unit `{other}`; the units are B, KiB, MiB, GiB, kB, MB and GB"));
        }
    };
    match number.checked_mul(factor) {
        Some(0) => Err("must be more than zero".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{text}` is too large")),
    }
}

/// Formats a length of time for a sentence: `350ms`, `2.5s`, `5m`.
pub fn in_words(length: Duration) -> String {
    if length < Duration::from_secs(1) {
        return format!("{}ms", length.as_millis());
    }
    if length < Duration::from_secs(60) {
        let tenths = length.as_millis() / 100;
        return if tenths.is_multiple_of(10) {
            format!("{}s", tenths / 10)
        } else {
            format!("{}.{}s", tenths / 10, tenths % 10)
        };
    }
    humantime::format_duration(Duration::from_secs(length.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_need_a_unit() {
        for (text, expect) in [
            ("30s", Some(Duration::from_secs(30))),
            ("500ms", Some(Duration::from_millis(500))),
            ("1m 30s", Some(Duration::from_secs(90))),
            ("90", None),
            ("0s", None),
            ("", None),
            ("soon", None),
            ("-1s", None),
            ("2h", Some(Duration::from_secs(7200))),
            ("1d 1w", Some(Duration::from_secs(8 * 86400))),
            ("5M", None),
            ("1month", None),
            ("5min", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expect, "{text}");
        }
        assert!(parse_duration("90").unwrap_err().contains("90s"));
        let told = parse_duration("5M").unwrap_err();
        assert!(told.contains("`M`") && told.contains("the units are ms, s, m, h, d and w"), "{told}");
        assert!(parse_duration("soon").unwrap_err().contains("is not a length of time"));
    }

    #[test]
    fn sizes_need_a_unit() {
        for (text, expect) in [
            ("16MiB", Some(16 << 20)),
            ("64 KiB", Some(64 << 10)),
            ("5MB", Some(5_000_000)),
            ("1B", Some(1)),
            ("16", None),
            ("0MiB", None),
            ("MiB", None),
            ("16 MeB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse_size(text).ok(), expect, "{text}");
        }
        assert!(parse_size("16").unwrap_err().contains("16MiB"));
    }

    #[test]
    fn lengths_of_time_read_well() {
        for (milliseconds, expect) in
            [(350, "350ms"), (2_000, "2s"), (2_540, "2.5s"), (300_000, "5m"), (90_500, "1m 30s")]
        {
            assert_eq!(in_words(Duration::from_millis(milliseconds)), expect);
        }
    }

    #[test]
    fn each_unit_of_time_and_size_counts() {
        for (text, expect) in [
            ("7ms", Duration::from_millis(7)),
            ("7s", Duration::from_secs(7)),
            ("7m", Duration::from_secs(7 * 60)),
            ("7h", Duration::from_secs(7 * 3600)),
            ("7d", Duration::from_secs(7 * 86_400)),
            ("7w", Duration::from_secs(7 * 7 * 86_400)),
            ("7us", Duration::from_micros(7)),
            ("7ns", Duration::from_nanos(7)),
        ] {
            assert_eq!(parse_duration(text), Ok(expect), "{text}");
        }
        for (text, expect) in [
            ("7B", 7),
            ("7KiB", 7168),
            ("7MiB", 7_340_032),
            ("7GiB", 7_516_192_768),
            ("7kB", 7000),
            ("7KB", 7000),
            ("7MB", 7_000_000),
            ("7GB", 7_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(expect), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, expect) in [
            ("90", "needs a unit: 90ms, 90s or 90m?"),
            ("0s", "must be longer than zero"),
            ("0", "must be longer than zero"),
            ("5M", "unknown unit `M` in `5M`; the units are ms, s, m, h, d and w"),
            (" 5M", "unknown unit `M` in ` 5M`; the units are ms, s, m, h, d and w"),
            ("soon", "`soon` is not a length of time; write a number with a unit, such as 500ms, 30s or 5m"),
            ("-1s", "`-1s` is not a length of time; write a number with a unit, such as 500ms, 30s or 5m"),
            ("", "`` is not a length of time; write a number with a unit, such as 500ms, 30s or 5m"),
            (
                "99999999999999999999w",
                "`99999999999999999999w` is too long, or too fine, to be counted in nanoseconds",
            ),
        ] {
            assert_eq!(parse_duration(text), Err(expect.to_owned()), "{text}");
        }
        for (text, expect) in [
            ("16", "needs a unit: 16B, 16KiB or 16MiB?"),
            ("0MiB", "must be more than zero"),
            ("MiB", "`MiB` is not a size; write a whole number with a unit, such as 64KiB or 16MiB"),
            ("16MeB", "unknown unit `MeB`; the units are B, KiB, MiB, GiB, kB, MB and GB"),
            ("18014398509481984KiB", "`18014398509481984KiB` is too large"),
        ] {
            assert_eq!(parse_size(text), Err(expect.to_owned()), "{text}");
        }
    }

    #[test]
    fn lengths_of_time_change_their_form_at_a_second_and_at_a_minute() {
        for (milliseconds, expect) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (1099, "1s"),
            (1100, "1.1s"),
            (10_000, "10s"),
            (59_999, "59.9s"),
            (60_000, "1m"),
            (60_999, "1m"),
            (3_600_000, "1h"),
        ] {
            assert_eq!(in_words(Duration::from_millis(milliseconds)), expect);
        }
    }
}
