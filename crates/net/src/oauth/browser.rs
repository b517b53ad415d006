//! A person with a browser on this machine: the redirect comes to a port of this process.
//!
//! Invariants
//!
//! - It listens on 127.0.0.1 alone, and for as long as the login lasts.
//! - A browser opens connections that it does not use; no connection holds another up, and none may send more than [`MAX_HEAD`].
//! - Only a redirect with the `state` that the browser was sent with ends the wait, be it a code or an error: any page and any program on
//!   this machine can come here and say something.
//! - The answers to a browser contain nothing that came from outside.

use std::{sync::Arc, time::Duration};

use reqwest::Url;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    agent::{Agent, AgentResult, Redirect},
    error::{AuthorizationError, told_as_url},
};

/// The path to which the browser is sent.
const PATH: &str = "/callback";
/// The most bytes of a browser's request: cookies of other programs on this machine come along.
const MAX_HEAD: usize = 64 << 10;
/// The time for one request and its answer.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most connections at the same time; more than a browser opens.
const MAX_CONNECTIONS: usize = 32;

/// Shows a URL to a person, and waits for the browser to come back.
pub struct Browser<Show> {
    listener: TcpListener,
    redirect_uri: String,
    limit: Duration,
    show: Show,
}

impl<Show: Fn(&str) + Send + Sync> Browser<Show> {
    /// Makes an agent that waits for the browser for so long.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::System`] if no port is to be had.
    pub async fn new(limit: Duration, show: Show) -> Result<Self, AuthorizationError> {
        let system = |error: std::io::Error| AuthorizationError::System {
            what: "there is no port on 127.0.0.1 for the browser to return to",
            why: error.to_string(),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(system)?;
        let port = listener.local_addr().map_err(system)?.port();
        Ok(Self { listener, redirect_uri: format!("http://127.0.0.1:{port}{PATH}"), limit, show })
    }

    /// Waits for the redirect that has this `state`.
    async fn wait(&self, state: &str) -> Redirect {
        let state: Arc<str> = state.into();
        let mut visitors = JoinSet::new();
        loop {
            tokio::select! {
                Some(visited) = visitors.join_next() => {
                    // A panic has been logged, and a visitor with another request does not count as an answer.
                    if let Ok(Some(redirect)) = visited {
                        return redirect;
                    }
                }
                accepted = self.listener.accept(), if visitors.len() < MAX_CONNECTIONS => {
                    match accepted {
                        Ok((stream, _)) => {
                            let state = Arc::clone(&state);
                            visitors.spawn(async move {
                                timeout(EXCHANGE_LIMIT, exchange(stream, &state)).await.ok().flatten()
                            });
                        }
                        // The connection has gone again, or there is no descriptor for it: the next one may be luckier.
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

    fn authorize(&self, url: String) -> AgentResult<'_> {
        Box::pin(async move {
            let asked = Url::parse(&url).map_err(|_| AuthorizationError::NoUrl { url: told_as_url(&url) })?;
            let state = asked.query_pairs().find(|(name, _)| name == "state").map(|(_, state)| state);
            (self.show)(&url);
            // Without a state nobody could tell an answer from anything else.
            let state = state.ok_or(AuthorizationError::WrongState)?;
            let came = timeout(self.limit, self.wait(&state)).await;
            came.map_err(|_| AuthorizationError::NobodyCame { limit: self.limit })
        })
    }
}

/// Reads one request of a browser and answers it. Returns the redirect in it; `None` if it has none with this `state`.
async fn exchange(mut stream: TcpStream, state: &str) -> Option<Redirect> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read_buf(&mut head).await.ok()?;
        if count == 0 || head.len() > MAX_HEAD {
            return None;
        }
    }
    let redirect = redirect_in(&head);
    let is_ours = redirect.as_ref().is_some_and(|redirect| redirect.state.as_deref() == Some(state));
    let (status, text) = match &redirect {
        Some(_) if !is_ours => {
            ("400 Bad Request", "This request does not belong to the login that unhang waits for.")
        }
        None => ("404 Not Found", "This page does not exist."),
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
    // A browser that does not wait for the page has still sent the redirect.
    let _gone = stream.write_all(answer.as_bytes()).await;
    let _gone = stream.shutdown().await;
    redirect.filter(|_| is_ours)
}

/// Reads the redirect in a request; `None` if the request is another one.
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

    #[tokio::test]
    async fn f_35_only_what_has_the_state_ends_the_wait() {
        let (shown, _told) = std::sync::mpsc::sync_channel(1);
        let show = move |url: &str| drop(shown.send(url.to_owned()));
        let browser = Browser::new(Duration::from_secs(30), show).await.expect("a port");
        let back = browser.redirect_uri().expect("an address");
        let address = back.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("a host");
        let redirect = async |query: &str| {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            let head = format!("GET /callback?{query} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer[9..12].to_owned()
        };
        let redirects = async {
            for query in
                ["error=access_denied", "error=access_denied&state=guessed", "code=a&state=", "code=a"]
            {
                assert_eq!(redirect(query).await, "400", "{query}");
            }
            assert_eq!(redirect("code=right&state=s+1").await, "200");
        };
        let url = "https://as.example.org/authorize?client_id=x&state=s%201".to_owned();
        let (redirect, ()) = tokio::join!(browser.authorize(url), redirects);
        assert_eq!(redirect.expect("it came").code.as_deref(), Some("right"));
    }
}
