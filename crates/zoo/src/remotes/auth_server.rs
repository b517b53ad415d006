//! Asks for a token, and gives tokens: an MCP server over HTTP with its authorization server, with one vice or none.
//!
//! Its keys are at `/as/keys`, `/keys/change` makes others, and `/sign` signs whatever claims it is sent, by whomever it is told.
//!
//! Habits: `--scopes` and `--supported` (what the challenge and the metadata of the server name), `--needs SCOPE`, `--expires SECONDS`,
//! `--client ID:SECRET`, `--methods` (of clients to prove who they are), `--offline yes`, `--documents yes`, `--keeps-refresh yes` (a
//! refresh token stays good, and no other is given for it) and `--resource URL` (tokens are for that server, and signed).
//!
//! Its URL is `/mcp`; `/log` tells what came to its authorization server, `/forget` makes it forget the tokens that it gave out, but for
//! refresh tokens, and `/move` puts another authorization server in its place.
//!
//! # Invariants
//!
//! - It is strict: what a client leaves out that it must send is refused with a sentence.
//! - Every token, code and secret begins with `secret-`, so that a test finds it where it must not be; but signed tokens cannot.

mod authority;
mod digest;
mod http;
mod signer;

use std::io;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

use self::authority::Authority;
use self::http::{AuthAnswer, AuthRequest};
use crate::web::{Then, WebRequest, listen, wire::Wire};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "auth-server",
    incident: "RFC 9207, RFC 9700 and RFC 9728 tell of the attacks and mix-ups; an authorization server that hangs is the rest.",
    usage: "[--vice NAME] [--HABIT VALUE ...]",
    promises: &[1],
    run,
};

/// What it may do wrong.
const VICES: [&str; 16] = [
    "denies",
    "endless",
    "insecure",
    "missing-iss",
    "no-metadata",
    "no-pkce",
    "redirects",
    "refuses-every-token",
    "refuses-refresh",
    "refuses-registration",
    "repeats",
    "silent",
    "wrong-iss",
    "wrong-issuer",
    "wrong-resource",
    "wrong-state",
];

/// What it was told to be.
struct Habits {
    vice: String,
    /// What the challenge of a request without a token says.
    scopes: Option<String>,
    /// What the metadata of the resource says.
    supported: Option<String>,
    /// What a token must be good for.
    needs: Option<String>,
    expires: Option<u64>,
    /// One that is known, with its secret.
    client: Option<(String, String)>,
    /// How clients may prove who they are.
    methods: String,
    offers_offline: bool,
    reads_documents: bool,
    keeps_refresh: bool,
    /// Whom tokens are for, where that is somebody else.
    resource: Option<String>,
}

impl Habits {
    fn of(arguments: &ProgramArguments) -> io::Result<Self> {
        let text = |name| Ok::<_, io::Error>(arguments.option(name)?.map(str::to_owned));
        let vice = text("vice")?.unwrap_or_default();
        if !vice.is_empty() && !VICES.contains(&&*vice) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the vices are {}", VICES.join(", ")),
            ));
        }
        let client = text("client")?;
        Ok(Self {
            vice,
            scopes: text("scopes")?,
            supported: text("supported")?,
            needs: text("needs")?,
            expires: arguments
                .option("expires")?
                .map(|_| arguments.number_option("expires", 0))
                .transpose()?,
            client: client
                .and_then(|client| client.split_once(':').map(|(id, secret)| (id.into(), secret.into()))),
            methods: text("methods")?.unwrap_or_else(|| "none".to_owned()),
            offers_offline: arguments.option("offline")?.is_some(),
            reads_documents: arguments.option("documents")?.is_some(),
            keeps_refresh: arguments.option("keeps-refresh")?.is_some(),
            resource: text("resource")?,
        })
    }

    fn has(&self, vice: &str) -> bool {
        self.vice == vice
    }
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let habits = Habits::of(arguments)?;
    let server = Arc::new(OnceLock::new());
    let site = {
        let server = Arc::clone(&server);
        // Nobody knows where it is before it is there.
        move |asked: &WebRequest, wire: &mut Wire| {
            server.get().map_or(Ok(Then::HangUp), |server: &AuthorizationServer| server.serve(asked, wire))
        }
    };
    let url = listen("/mcp", true, Arc::new(site))?;
    let base = url.trim_end_matches("/mcp").to_owned();
    let authority = Authority::new(habits, base.clone())?;
    server.get_or_init(|| AuthorizationServer { authority, base });
    pipe::send_line(&url)?;
    pipe::drain()?;
    Ok(ExitCode::SUCCESS)
}

/// Pieces of 64 KiB of an answer without end: far more than anybody takes.
const ENDLESS: usize = 1024;

struct AuthorizationServer {
    authority: Authority,
    base: String,
}

impl AuthorizationServer {
    fn serve(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        let request = AuthRequest::of(asked);
        let habits = self.authority.habits();
        let is_metadata = request.path.starts_with("/.well-known/oauth-authorization-server");
        if habits.has("silent") && is_metadata {
            wire.wait_for_the_end();
            return Ok(Then::HangUp);
        }
        if habits.has("endless") && is_metadata {
            wire.begin(&[], "application/json")?;
            wire.piece(b"{\"issuer\": \"")?;
            for _ in 0..ENDLESS {
                wire.piece(&[b'x'; 64 << 10])?;
            }
            return Ok(Then::HangUp);
        }
        self.answer(&request).write(wire)
    }

    fn answer(&self, request: &AuthRequest) -> AuthAnswer {
        let habits = self.authority.habits();
        match request.path {
            "/mcp" => self.resource(request),
            "/log" => AuthAnswer::json(200, &self.authority.log()),
            "/forget" => {
                self.authority.forget();
                AuthAnswer::new(204)
            }
            "/move" => {
                self.authority.move_away();
                AuthAnswer::new(204)
            }
            "/keys/change" => AuthAnswer::new(if self.authority.change_keys().is_ok() { 204 } else { 500 }),
            "/sign" => self.authority.sign(request),
            _ if habits.has("no-metadata") => AuthAnswer::new(404),
            "/.well-known/oauth-protected-resource/mcp" if habits.has("redirects") => {
                let elsewhere = self.base.replace("127.0.0.1", "localhost");
                AuthAnswer::new(302).with("Location", format!("{elsewhere}/elsewhere?key=HUSHHUSH"))
            }
            "/.well-known/oauth-protected-resource/mcp" => AuthAnswer::json(200, &self.metadata()),
            _ => self.authority.answer(request).unwrap_or_else(|| AuthAnswer::new(404)),
        }
    }

    fn metadata(&self) -> serde_json::Value {
        let habits = self.authority.habits();
        let resource = if habits.has("wrong-resource") {
            "http://127.0.0.1:1/mcp"
        } else {
            &format!("{}/mcp", self.base)
        };
        let mut metadata =
            json!({ "resource": resource, "authorization_servers": [self.authority.issuer()] });
        if let Some(scopes) = &habits.supported {
            metadata["scopes_supported"] = scopes.split_whitespace().collect();
        }
        metadata
    }

    /// The MCP server, for who has a token.
    fn resource(&self, request: &AuthRequest) -> AuthAnswer {
        let habits = self.authority.habits();
        let token = request.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let Some(granted) = self.authority.granted(token) else {
            let scope =
                habits.scopes.as_ref().map_or_else(String::new, |scopes| format!(", scope=\"{scopes}\""));
            return self.challenge(401, &scope);
        };
        if let Some(needs) =
            habits.needs.as_ref().filter(|needs| !granted.split(' ').any(|scope| scope == **needs))
        {
            return self.challenge(403, &format!(", error=\"insufficient_scope\", scope=\"{needs}\""));
        }
        Plain::new(PROGRAM.name)
            .answer(request.message())
            .map_or_else(|| AuthAnswer::new(202), |answer| AuthAnswer::json(200, &answer))
    }

    fn challenge(&self, status: u16, more: &str) -> AuthAnswer {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.base);
        let says = if self.authority.habits().has("no-metadata") {
            "Bearer".to_owned()
        } else {
            format!("Bearer resource_metadata=\"{metadata}\"{more}")
        };
        AuthAnswer::new(status).with("WWW-Authenticate", says)
    }
}
