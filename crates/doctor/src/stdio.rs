//! The examination of a server on stdio: three starts, one after the other, each with its own requests.
//!
//! 1. The first start is measured alone. A session follows, as most clients have it: handshake, lists, ping, safe calls, a moment of
//!    silence, the end of stdin.
//! 2. In the second start the doctor is a client of the stateless revision: `server/discover`, a list without a handshake, and a
//!    handshake after that.
//! 3. The third start is measured as well. The server then gets lines that are not messages, and SIGTERM.
//!
//! Invariants: every wait has a limit. Observations from before a limit passed are kept. Each start is ended with all processes that it
//! started.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{sync::SemaphorePermit, time::Instant};
use unhang_proc::server::ServerSpec;
use unhang_wire::compose;

use super::{
    Starts,
    examined_server::{ExaminedServer, NoAnswer, ServerReply},
    observations::{AfterGarbage, DiscoverSeen, HandshakeSeen, Observations, ServerTrouble, StartResult},
    session::{self, ExaminedEra},
};
use unhang_core::{config::PROBE_PATIENCE, limits::Limits, revision::Revision};
use unhang_upstream::handshake::{HandshakeRequest, Introduction};

/// How long a server may take to end once it was told to. Clients and SDKs wait 2 to 3 s before they kill it.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(3);
/// How long the doctor still listens to a late probe for the stateless revision, to report how late it is.
const LATE_PATIENCE: Duration = Duration::from_secs(4);
/// How long no other server is started while one start is measured. A start that takes longer is slow by itself.
const QUIET: Duration = Duration::from_millis(1500);
/// The error of a server that does not speak the revision of a request.
const WRONG_REVISION: i64 = -32022;

/// Lines that are not messages: broken, of another kind, empty, not text.
const GARBAGE: [&[u8]; 7] = [
    b"this is no JSON",
    br#"{"jsonrpc":"2.0","id":"#,
    b"",
    b"[]",
    b"42",
    br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\xfe\"}",
];

/// One running examination.
pub(super) struct Examination<'a> {
    pub(super) name: &'a str,
    pub(super) server: &'a ServerSpec,
    pub(super) limits: &'a Limits,
    pub(super) starts: &'a Starts,
    pub(super) introduction: Introduction,
    pub(super) seen: &'a mut Observations,
}

impl Examination<'_> {
    /// Examines everything that can be seen.
    pub(super) async fn run(&mut self) {
        let name = self.name;
        tracing::info!("examining `{name}`: its first start, and a session");
        let Some(era) = self.first().await else { return };
        if era == ExaminedEra::Handshake {
            tracing::info!("examining `{name}`: a client of the stateless revision");
            self.modern().await;
        }
        tracing::info!("examining `{name}`: its second start, garbage, SIGTERM");
        self.second(era).await;
    }

    /// Makes the first start, and has the session in the era that the server speaks. Returns `None` if no session is possible.
    async fn first(&mut self) -> Option<ExaminedEra> {
        let (talk, answer) = self.start(true, HandshakeRequest::Initialize, self.limits.start_timeout).await;
        let (mut talk, answer) = match (talk, answer) {
            (Some(talk), Ok(answer)) => (talk, answer),
            (talk, failed) => {
                match failed {
                    Err(NoAnswer::Mute) => {
                        self.seen.troubles.push(ServerTrouble::Mute("`initialize`".to_owned()));
                    }
                    Err(NoAnswer::Deaf) => {
                        self.seen.troubles.push(ServerTrouble::Deaf("`initialize`".to_owned()));
                    }
                    _ => {}
                }
                let is_silent = matches!(self.seen.cold, Some(StartResult::Silent(_)));
                self.dismiss(talk).await;
                // A server that knows no handshake may stay silent on it.
                return if is_silent { self.stateless_session(PROBE_PATIENCE).await } else { None };
            }
        };
        match answer {
            Ok(result) => {
                let members: Value = serde_json::from_str(&result).unwrap_or_default();
                let revision = members["protocolVersion"].as_str().unwrap_or_default().to_owned();
                self.seen.handshake = Some(HandshakeSeen::Agreed(revision));
                talk.say(&compose::notification("notifications/initialized", "{}"));
                session::attend(self, &mut talk, ExaminedEra::Handshake, &members["capabilities"]).await;
                self.dismiss(Some(talk)).await;
                Some(ExaminedEra::Handshake)
            }
            Err((code, message)) => {
                self.seen.handshake = Some(HandshakeSeen::Refused(code, message));
                self.dismiss(Some(talk)).await;
                self.stateless_session(self.limits.start_timeout).await
            }
        }
    }

    /// Tries a session with a server that refuses handshakes. Returns `None` if no session is possible.
    async fn stateless_session(&mut self, limit: Duration) -> Option<ExaminedEra> {
        let (talk, answer) = self.start_unmeasured(HandshakeRequest::Discover, limit).await;
        let mut talk = talk?;
        let capabilities = match answer {
            Ok(Ok(result)) => speaks_stateless(&result),
            _ => None,
        };
        if let Some(capabilities) = &capabilities {
            self.seen.modern = Some(DiscoverSeen::Spoken { is_locked: false });
            session::attend(self, &mut talk, ExaminedEra::Stateless, capabilities).await;
        }
        self.dismiss(Some(talk)).await;
        capabilities.map(|_| ExaminedEra::Stateless)
    }

    /// Starts the server as a client of the stateless revision does.
    async fn modern(&mut self) {
        let usual = match self.seen.cold {
            // The machine may be busier than it was.
            Some(StartResult::Answered(after)) => after * 4,
            _ => Duration::ZERO,
        };
        let (talk, answer) = self.start_unmeasured(HandshakeRequest::Discover, usual + PROBE_PATIENCE).await;
        let Some(mut talk) = talk else { return };
        self.seen.modern = Some(match answer {
            Ok(Ok(result)) if speaks_stateless(&result).is_some() => {
                let again = self.introduction.params(HandshakeRequest::Initialize);
                let answered = talk.ask("initialize", &again, self.limits.request_timeout).await;
                let is_locked = matches!(answered, Ok((Err((WRONG_REVISION, _)), _)));
                DiscoverSeen::Spoken { is_locked }
            }
            Ok(_) | Err(NoAnswer::Spoilt) => {
                let list = self.params(ExaminedEra::Stateless, &json!({}));
                let listed = talk.ask("tools/list", &list, self.limits.request_timeout).await;
                let is_ambiguous =
                    matches!(listed, Ok((Ok(result), _)) if !result.contains("\"resultType\""));
                DiscoverSeen::Unknown { is_ambiguous }
            }
            Err(NoAnswer::Silence(waited)) => {
                talk.listen_for(1, LATE_PATIENCE).await;
                match talk.reader().has_reply(1) {
                    true => DiscoverSeen::Late(talk.age()),
                    false => DiscoverSeen::Silent(waited + LATE_PATIENCE),
                }
            }
            Err(NoAnswer::Ended(exit)) => DiscoverSeen::Ended(exit),
            Err(NoAnswer::Mute | NoAnswer::Deaf) => DiscoverSeen::Ended("it closed its pipes".to_owned()),
        });
        self.dismiss(Some(talk)).await;
    }

    /// Makes the second measured start, and sends garbage and SIGTERM.
    async fn second(&mut self, era: ExaminedEra) {
        let ask = if era == ExaminedEra::Handshake {
            HandshakeRequest::Initialize
        } else {
            HandshakeRequest::Discover
        };
        let (talk, _) = self.start(false, ask, self.limits.start_timeout).await;
        let Some(mut talk) = talk else { return };
        if !matches!(self.seen.warm, Some(StartResult::Answered(_))) {
            return self.dismiss(Some(talk)).await;
        }
        if era == ExaminedEra::Handshake {
            talk.say(&compose::notification("notifications/initialized", "{}"));
        }
        talk.reader().book().is_excused = true;
        GARBAGE.iter().for_each(|line| talk.say(line));
        let ping = self.params(era, &json!({}));
        let answered = talk.ask(era.ping(), &ping, self.limits.request_timeout).await;
        self.seen.garbage = Some(match answered {
            Ok(_) | Err(NoAnswer::Spoilt) => AfterGarbage::Survived,
            Err(NoAnswer::Ended(exit)) => AfterGarbage::Died(exit),
            Err(NoAnswer::Silence(waited)) => AfterGarbage::Deaf(waited),
            Err(NoAnswer::Mute | NoAnswer::Deaf) => AfterGarbage::Deaf(self.limits.request_timeout),
        });
        if !talk.is_over() {
            self.seen.sigterm = Some(talk.terminate(END_PATIENCE).await);
        }
        self.dismiss(Some(talk)).await;
    }

    /// Measures a start. Nothing else starts beside it until it has answered, or is certainly slow.
    async fn start(
        &mut self,
        is_cold: bool,
        ask: HandshakeRequest,
        limit: Duration,
    ) -> (Option<ExaminedServer>, Result<ServerReply, NoAnswer>) {
        let alone = self.starts.alone().await;
        let (talk, answer) = self.begin(ask, limit, alone).await;
        let start = match (&talk, &answer) {
            (None, Err(NoAnswer::Ended(why))) => StartResult::Failed(why.clone()),
            (Some(talk), Err(NoAnswer::Ended(_))) if talk.failure().is_some() => {
                StartResult::Failed(talk.failure().unwrap_or_default().to_owned())
            }
            (Some(talk), Ok(_)) => StartResult::Answered(talk.needed()),
            (_, Err(NoAnswer::Ended(exit))) => StartResult::Ended(exit.clone()),
            (_, Err(NoAnswer::Silence(waited))) => StartResult::Silent(*waited),
            _ => StartResult::Unusable,
        };
        *(if is_cold { &mut self.seen.cold } else { &mut self.seen.warm }) = Some(start);
        (talk, answer)
    }

    async fn start_unmeasured(
        &mut self,
        ask: HandshakeRequest,
        limit: Duration,
    ) -> (Option<ExaminedServer>, Result<ServerReply, NoAnswer>) {
        let beside = self.starts.beside().await;
        self.begin(ask, limit, beside).await
    }

    async fn begin(
        &mut self,
        ask: HandshakeRequest,
        limit: Duration,
        permit: Option<SemaphorePermit<'_>>,
    ) -> (Option<ExaminedServer>, Result<ServerReply, NoAnswer>) {
        let mut talk = match ExaminedServer::start(self.name, self.server, self.limits, &self.starts.started)
        {
            Ok(talk) => talk,
            Err(why) => return (None, Err(NoAnswer::Ended(why))),
        };
        let by = Instant::now() + limit;
        let id = talk.send(ask.method(), &self.introduction.params(ask));
        let mut answer = talk.answer(id, limit.min(QUIET)).await;
        drop(permit);
        if matches!(answer, Err(NoAnswer::Silence(_))) && limit > QUIET {
            let left = by.saturating_duration_since(Instant::now());
            answer = talk.answer(id, left).await.map_err(|failed| match failed {
                NoAnswer::Silence(_) => NoAnswer::Silence(limit),
                failed => failed,
            });
        }
        (Some(talk), answer)
    }

    /// Ends a start, and keeps what it wrote if it is the most so far.
    async fn dismiss(&mut self, talk: Option<ExaminedServer>) {
        let Some(mut talk) = talk else { return };
        talk.kill(self.limits).await;
        session::remember(self.seen, &mut talk);
    }

    /// Writes params in the form of the era.
    pub(super) fn params(&self, era: ExaminedEra, params: &Value) -> String {
        match era {
            ExaminedEra::Handshake => params.to_string(),
            ExaminedEra::Stateless => self.introduction.signed(&params.to_string()),
        }
    }
}

/// Returns the capabilities of a server whose answer to `server/discover` has the stateless revision. Returns `None` if it does not.
fn speaks_stateless(result: &str) -> Option<Value> {
    let mut members: Value = serde_json::from_str(result).ok()?;
    let versions = members["supportedVersions"].as_array()?;
    let is_spoken = versions.iter().any(|version| version == Revision::V2026July.name());
    is_spoken.then(|| members["capabilities"].take())
}
