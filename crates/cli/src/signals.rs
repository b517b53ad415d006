//! The signals that ask us to end, as something to wait for.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use unhang::guard::Stop;

/// Turns signals into stops. A hang-up is the client's terminal going away, so it ends us as SIGTERM does.
pub(crate) fn signals() -> io::Result<mpsc::Receiver<Stop>> {
    let (sender, receiver) = mpsc::channel(4);
    for (kind, stop) in [
        (SignalKind::interrupt(), Stop::Interrupt),
        (SignalKind::terminate(), Stop::Terminate),
        (SignalKind::hangup(), Stop::Terminate),
    ] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            // The receiver has gone when what was waiting has ended.
            while signals.recv().await.is_some() && sender.send(stop).await.is_ok() {}
        });
    }
    Ok(receiver)
}
