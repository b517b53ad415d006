//! Collects items into a sorted map or set by inserting one after the other.
//!
//! `collect` sorts the items first. That is faster for thousands of items, but the sort has about four kilobytes of code for each place in the
//! program that collects. Lists of settings and servers are short, and are collected once.

/// An iterator whose items are inserted one by one.
pub trait InsertEach: Iterator + Sized {
    /// Collects the items. Of two with the same key, the later one stays.
    #[must_use]
    fn insert_each<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }

    /// Collects the items.
    ///
    /// # Errors
    /// Fails with the first error among the items.
    fn try_insert_each<T, E, C: Default + Extend<T>>(mut self) -> Result<C, E>
    where
        Self: Iterator<Item = Result<T, E>>,
    {
        self.try_fold(C::default(), |mut all, item| {
            all.extend([item?]);
            Ok(all)
        })
    }
}

impl<I: Iterator> InsertEach for I {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::InsertEach;

    #[test]
    fn the_items_are_those_that_collect_gives() {
        let pairs = [(3, "c"), (1, "a"), (3, "d"), (2, "b")];
        let all: BTreeMap<i32, &str> = pairs.into_iter().insert_each();
        assert_eq!(all, pairs.into_iter().collect());
        let right = |(number, text)| if number < 4 { Ok((number, text)) } else { Err(number) };
        assert_eq!(pairs.into_iter().map(right).try_insert_each(), Ok(all));
        let wrong = [(1, "a"), (5, "e"), (4, "d")].into_iter().map(right);
        assert_eq!(wrong.try_insert_each::<_, _, BTreeMap<i32, &str>>(), Err(5));
    }
}
