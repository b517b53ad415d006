//! The place of a request in a trace, in the form of W3C Trace Context. Pure.
//!
//! Invariants: a text that is not exactly a `traceparent` counts as none, and nothing of it is used.

use data_encoding::HEXLOWER;

/// The trace and span that a request belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
    /// The `tracestate` of others, as it came.
    pub(super) state: String,
}

/// The longest `tracestate` that is passed on. A longer one is left out whole, as the standard allows.
const MOST_STATE: usize = 512;

impl Parent {
    /// Parses `traceparent` and `tracestate`; `None` if the first is not valid.
    pub fn read(parent: &str, state: Option<&str>) -> Option<Parent> {
        let (version, rest) = parent.split_once('-')?;
        let (trace, rest) = rest.split_once('-')?;
        let (span, rest) = rest.split_once('-')?;
        // A later version may have more behind the flags; this one does not.
        let flags = match rest.split_once('-') {
            Some((flags, _)) if version != "00" => flags,
            Some(_) => return None,
            None => rest,
        };
        let [version] = bytes::<1>(version)?;
        let ([flags], trace, span) = (bytes::<1>(flags)?, bytes::<16>(trace)?, bytes::<8>(span)?);
        let is_none = version == 0xff || trace == [0; 16] || span == [0; 8];
        let state = state.filter(|state| state.len() <= MOST_STATE).unwrap_or_default().to_owned();
        (!is_none).then_some(Parent { trace, span, is_sampled: flags & 1 == 1, state })
    }
}

/// Parses so many bytes, written in small letters.
fn bytes<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_exactly_one_is_none() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let read = |text: &str| Parent::read(text, None).map(|parent| parent.is_sampled);
        for (text, expect) in [
            (format!("00-{trace}-{span}-01"), Some(true)),
            (format!("00-{trace}-{span}-00"), Some(false)),
            (format!("00-{trace}-{span}-03"), Some(true)),
            (format!("cc-{trace}-{span}-01-what-comes-later"), Some(true)),
            (format!("00-{trace}-{span}-01-what-comes-later"), None),
            (format!("ff-{trace}-{span}-01"), None),
            (format!("00-{}-{span}-01", trace.to_uppercase()), None),
            (format!("00-{}-{span}-01", "0".repeat(32)), None),
            (format!("00-{trace}-{}-01", "0".repeat(16)), None),
            (format!("00-{trace}0-{span}-01"), None),
            (format!("00-{trace}-{span}"), None),
            (format!("00-{trace}-{span}-"), None),
            (format!("00-{trace}-{span}-02"), Some(false)),
            (format!("0-{trace}-{span}-01"), None),
            (format!("cc-{trace}-{span}-01"), Some(true)),
            (format!("00-{trace}-{span}-1"), None),
            (String::new(), None),
            ("ä-ö-ü-ß".to_owned(), None),
        ] {
            assert_eq!(read(&text), expect, "{text}");
        }
        let with =
            |state: &str| Parent::read(&format!("00-{trace}-{span}-01"), Some(state)).expect("one").state;
        assert_eq!((with("a=b"), with(&"a".repeat(MOST_STATE + 1))), ("a=b".to_owned(), String::new()));
        assert_eq!(with(&"a".repeat(MOST_STATE)), "a".repeat(MOST_STATE));
    }
}
