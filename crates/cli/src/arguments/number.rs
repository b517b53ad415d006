//! Whole numbers on the command line, with error texts of unhang's own.

use std::{fmt::Display, str::FromStr};

use clap::builder::TypedValueParser;

/// Makes a parser that takes whole numbers within these bounds.
pub(crate) fn whole_number<T>(least: T, most: T) -> impl TypedValueParser<Value = T>
where
    T: Bounded,
{
    move |text: &str| {
        let number = text.parse().ok().filter(|number| (&least..=&most).contains(&number));
        number.ok_or_else(|| {
            let bounds = if most == T::LAST {
                format!("of {least} or more")
            } else {
                format!("from {least} to {most}")
            };
            format!("write a whole number {bounds}")
        })
    }
}

/// A type of whole numbers.
pub(crate) trait Bounded: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static {
    /// The largest number of the type.
    const LAST: Self;
}

impl Bounded for u8 {
    const LAST: u8 = u8::MAX;
}

impl Bounded for u16 {
    const LAST: u16 = u16::MAX;
}

impl Bounded for u32 {
    const LAST: u32 = u32::MAX;
}

impl Bounded for u64 {
    const LAST: u64 = u64::MAX;
}
