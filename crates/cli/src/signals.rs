//! The signals that ask this process to end, as a channel to wait for.

use std::{fs::File, io};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use unhang::guard::Stop;

/// Turns signals into stops. A hang-up means that the client's terminal goes away, so it ends the process as SIGTERM does.
pub(crate) fn signals() -> io::Result<mpsc::Receiver<Stop>> {
    let (sender, receiver) = stops()?;
    forward(SignalKind::hangup(), sender, || Stop::Terminate)?;
    Ok(receiver)
}

/// Turns signals into stops, and passes on hang-ups, after which a server reads its configuration again. A hang-up still ends the process
/// if it had a terminal and has lost it.
pub(crate) fn signals_and_hangups() -> io::Result<(mpsc::Receiver<Stop>, mpsc::Receiver<()>)> {
    let (sender, receiver) = stops()?;
    let (tell, hangups) = mpsc::channel(1);
    let had_terminal = has_terminal();
    let mut signals = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            match had_terminal && !has_terminal() {
                true => drop(sender.send(Stop::Terminate).await),
                // Several hang-ups at once count as one.
                false => drop(tell.try_send(())),
            }
        }
    });
    Ok((receiver, hangups))
}

/// Returns whether this process has a terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

fn stops() -> io::Result<(mpsc::Sender<Stop>, mpsc::Receiver<Stop>)> {
    let (sender, receiver) = mpsc::channel(4);
    forward(SignalKind::interrupt(), sender.clone(), || Stop::Interrupt)?;
    forward(SignalKind::terminate(), sender.clone(), || Stop::Terminate)?;
    Ok((sender, receiver))
}

fn forward(kind: SignalKind, sender: mpsc::Sender<Stop>, stop: fn() -> Stop) -> io::Result<()> {
    let mut signals = signal(kind)?;
    tokio::spawn(async move {
        // The receiver is dropped when the work that waited for it has ended.
        while signals.recv().await.is_some() && sender.send(stop()).await.is_ok() {}
    });
    Ok(())
}
