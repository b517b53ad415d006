//! Notifications that a client does not get while a call runs (`quiet`, G-13).
//!
//! Invariant: the kept bytes are bounded.

use std::collections::HashSet;

use unhang_core::queue::Class;
use unhang_wire::one_line;

use super::effects::WrapEffects;

/// Notifications that wait for the end of a call, in order.
#[derive(Debug, Default)]
pub(super) struct DeferredNotifications {
    lines: Vec<(Class, Vec<u8>)>,
    bytes: usize,
}

impl DeferredNotifications {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Keeps a notification until the client may get it. Returns false if it is dropped: log messages and progress would be stale by then,
    /// and at most `limit` bytes are kept.
    pub(super) fn keep(&mut self, class: Class, raw: &[u8], limit: usize) -> bool {
        let is_stale = matches!(class, Class::Log | Class::Progress(_));
        if is_stale || (self.bytes + raw.len() > limit) {
            return false;
        }
        let line = one_line(raw).into_owned();
        self.bytes += line.len();
        self.lines.push((class, line));
        true
    }

    /// Delivers the kept notifications, merging those of a kind if one is enough. Returns how many were left out.
    pub(super) fn release(&mut self, effects: &mut impl WrapEffects) -> u64 {
        let (mut said, mut dropped) = (HashSet::new(), 0);
        self.bytes = 0;
        for (class, line) in std::mem::take(&mut self.lines) {
            let repeated = match &class {
                Class::ListChanged(method) => !said.insert(method.clone()),
                _ => false,
            };
            if repeated {
                dropped += 1;
            } else {
                effects.to_client(class, &line);
            }
        }
        dropped
    }

    /// Returns the number of kept bytes twice: as the counter has it, and summed up.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.bytes, self.lines.iter().map(|(_, line)| line.len()).sum())
    }
}
