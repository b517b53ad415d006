//! A person with a browser on this machine: the redirect comes to a port of ours.
//!
//! Invariants
//!
//! - It listens on 127.0.0.1 alone, and for as long as the login lasts.
//! - A browser opens connections that it does not use; no connection holds another up, and none may send more than [`MAX_HEAD`].
//! - What a browser is answered has nothing in it that came from outside.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    agent::{Agent, Redirect, Visit},
    error::AuthorizationError,
};

/// Where the browser is sent.
const PATH: &str = "/callback";
/// A request of a browser: cookies of other programs on this machine come along.
const MAX_HEAD: usize = 64 << 10;
/// One request and its answer.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Before the next try where no connection could be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections at the same time; more than a browser opens.
const MAX_CONNECTIONS: usize = 32;

/// Shows a URL to a person, and waits for the browser to come back.
pub struct Browser<Show> {
    listener: TcpListener,
    redirect_uri: String,
    limit: Duration,
    show: Show,
}

impl<Show: Fn(&str) + Send + Sync> Browser<Show> {
    /// One that waits for so long.
    ///
    /// # Errors
    /// Where no port is to be had.
    pub async fn new(limit: Duration, show: Show) -> Result<Self, AuthorizationError> {
        let system = |error: std::io::Error| AuthorizationError::System {
            what: "there is no port on 127.0.0.1 for the browser to come back to",
            why: error.to_string(),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(system)?;
        let port = listener.local_addr().map_err(system)?.port();
        Ok(Self { listener, redirect_uri: format!("http://127.0.0.1:{port}{PATH}"), limit, show })
    }

    async fn wait(&self) -> Redirect {
        let mut visitors = JoinSet::new();
        loop {
            tokio::select! {
                Some(visited) = visitors.join_next() => {
                    // A panic has been told, and a visitor who wanted something else is no answer.
                    if let Ok(Some(redirect)) = visited {
                        return redirect;
                    }
                }
                accepted = self.listener.accept(), if visitors.len() < MAX_CONNECTIONS => {
                    match accepted {
                        Ok((stream, _)) => {
                            visitors.spawn(async { timeout(EXCHANGE_LIMIT, exchange(stream)).await.ok().flatten() });
                        }
                        // It has gone again, or there is no descriptor for it: the next one may be luckier.
                        Err(_) => sleep(ACCEPT_PAUSE).await,
                    }
                }
            }
        }
    }
}

impl<Show: Fn(&str) + Send + Sync> Agent for Browser<Show> {
    fn redirect_uri(&self) -> Result<String, AuthorizationError> {
        Ok(self.redirect_uri.clone())
    }

    fn authorize(&self, url: String) -> Visit<'_> {
        Box::pin(async move {
            (self.show)(&url);
            let came = timeout(self.limit, self.wait()).await;
            came.map_err(|_| AuthorizationError::NobodyCame { limit: self.limit })
        })
    }
}

/// One request of a browser, and its answer.
async fn exchange(mut stream: TcpStream) -> Option<Redirect> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read_buf(&mut head).await.ok()?;
        if count == 0 || head.len() > MAX_HEAD {
            return None;
        }
    }
    let redirect = redirect_in(&head);
    let (status, text) = match &redirect {
        None => ("404 Not Found", "There is nothing here."),
        Some(Redirect { code: None, .. }) => {
            ("200 OK", "The login was refused. You can close this page; unhang says why.")
        }
        Some(_) => ("200 OK", "You can close this page and go back to unhang."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    // A browser that does not wait for the page has still said what counts.
    let _gone = stream.write_all(answer.as_bytes()).await;
    let _gone = stream.shutdown().await;
    redirect
}

/// What a request says, where it is the one that is waited for.
fn redirect_in(head: &[u8]) -> Option<Redirect> {
    let line = str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let (path, query) = target.split_once('?')?;
    let redirect = Redirect::from_query(query);
    (path == PATH && (redirect.code.is_some() || redirect.error.is_some())).then_some(redirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_one() {
        let code = |head: &str| redirect_in(head.as_bytes()).and_then(|redirect| redirect.code);
        assert_eq!(code("GET /callback?code=a&state=b HTTP/1.1\r\n\r\n").as_deref(), Some("a"));
        assert!(redirect_in(b"GET /callback?error=access_denied HTTP/1.1\r\n\r\n").is_some());
        for other in [
            "GET /favicon.ico HTTP/1.1\r\n\r\n",
            "GET /favicon.ico?code=a HTTP/1.1\r\n\r\n",
            "GET /callback HTTP/1.1\r\n\r\n",
            "GET /callback?state=b HTTP/1.1\r\n\r\n",
            "POST /callback?code=a HTTP/1.1\r\n\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(redirect_in(other.as_bytes()).is_none(), "{other}");
        }
    }
}
