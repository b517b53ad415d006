//! Notices for a person who looks at the program and ought to know something at once. The program decides how they are shown.
//!
//! Invariants: saying something never waits.

use std::{fmt, sync::Arc};

/// Says notices to the person who looks at the program. Clones say them in the same way; the default says nothing.
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<NoticeSink>>);

type NoticeSink = dyn Fn(&str) + Send + Sync;

impl Notices {
    /// Makes notices that go to this function. It must not wait, because it is called on the runtime's threads.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(say)))
    }

    /// Says this text, which is one line.
    pub fn say(&self, text: &str) {
        if let Some(say) = &self.0 {
            say(text);
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Notices").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn what_is_said_reaches_whoever_listens_and_otherwise_nobody() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&heard);
        let notices = Notices::new(move |text| listener.lock().unwrap().push(text.to_owned()));
        let clone = notices.clone();
        notices.say("one");
        clone.say("two");
        Notices::default().say("three");
        assert_eq!(*heard.lock().unwrap(), ["one", "two"]);
    }
}
