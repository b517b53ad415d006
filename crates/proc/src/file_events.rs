//! Changes of files and folders, as the system tells of them, for threads that would have to look again and again otherwise.
//!
//! Invariants
//! - Each change since the watch began makes [`FileEvents`] readable. There may be more events than changes.
//! - A watch sees changes by other processes too, but none of another machine.

pub use crate::{
    awaited_change::AwaitedChange,
    system::{FileEvents, FileWatch, WakeEvent},
};

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd, path::Path, time::Duration};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(event: &impl AsFd, limit: Duration) -> bool {
        let mut polled = [PollFd::new(event, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::try_from(limit).unwrap())).unwrap() > 0
    }

    #[test]
    fn each_kind_of_change_is_told_until_the_watch_is_forgotten() {
        const SOON: Duration = Duration::from_secs(10);
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("file"), folder.path().join("new"));
        fs::write(&file, "1").unwrap();
        for (path, awaited, change) in [
            (&*file, AwaitedChange::Writes, &(|| fs::write(&file, "22").unwrap()) as &dyn Fn()),
            (folder.path(), AwaitedChange::NewFiles, &|| fs::write(&new, "1").unwrap()),
            (folder.path(), AwaitedChange::Files, &|| fs::remove_file(&new).unwrap()),
        ] {
            let events = FileEvents::new().unwrap();
            let watch = events.watch(path, awaited).unwrap();
            assert_eq!(events.watch(path, awaited).unwrap(), watch, "it is watched already");
            assert!(!is_readable(&events, Duration::ZERO), "{awaited:?}");
            change();
            assert!(is_readable(&events, SOON), "{awaited:?}");
            assert!(events.clear() && !events.clear(), "{awaited:?}");
            events.forget(watch);
            events.clear();
            change_again(&file);
            assert!(!is_readable(&events, Duration::ZERO), "{awaited:?} is not watched any more");
        }
        assert!(FileEvents::new().unwrap().watch(&new, AwaitedChange::Writes).is_err(), "it is not there");
    }

    fn change_again(file: &Path) {
        fs::write(file, "333").unwrap();
        fs::write(file.with_extension("other"), "1").unwrap();
        fs::remove_file(file.with_extension("other")).unwrap();
    }

    #[test]
    fn a_wake_event_stays_until_it_is_cleared() {
        let event = WakeEvent::new().unwrap();
        assert!(!is_readable(&event, Duration::ZERO));
        event.wake();
        event.wake();
        assert!(is_readable(&event, Duration::ZERO) && is_readable(&event, Duration::ZERO));
        event.clear();
        assert!(!is_readable(&event, Duration::ZERO));
    }
}
