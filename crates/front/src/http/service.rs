//! The routes over HTTP, and the checks that every request meets first: whether its page may ask, who asks, and that it is counted.
//!
//! A message reaches its handler by one comparison, without the layers and extensions of a router. Nearly all requests are messages, and
//! each layer costs every one of them allocations.
//!
//! Invariants: a stranger learns only that it is a stranger, and no byte of its body is read.

use std::sync::Arc;

use unhang_net::{
    oauth::RESOURCE_METADATA,
    serve::{
        HttpHandler, Origin,
        axum::{
            Router,
            extract::Request,
            http::{HeaderName, HeaderValue, Method, StatusCode, header},
            response::{IntoResponse, Response},
            routing::get,
        },
    },
};

use super::{
    HttpState,
    admission::{admitted, counted, of_stranger},
    handlers::{ended, listened, no_such_verb, nowhere, posted, refused, resource_metadata},
    hosts::{RequestOrigins, asked_host},
    old,
    operators::{health, metrics, ready, status},
};
use unhang_core::fault::FaultKind;

/// The path of MCP.
const PATH: &str = "/mcp";

/// The headers of an answer that a page may read: the name of its session, and the challenge of a refusal.
const EXPOSED: &str = "mcp-session-id, www-authenticate";

/// All routes.
#[derive(Clone)]
pub(super) struct HttpService {
    http_state: Arc<HttpState>,
    /// The routes for everything but messages.
    rest: Router,
}

impl HttpService {
    pub(super) fn new(http_state: Arc<HttpState>, offers_sse: bool) -> HttpService {
        let router = if offers_sse { old::router() } else { Router::new() };
        let rest = router
            .route(PATH, get(listened).head(no_such_verb).delete(ended).fallback(no_such_verb))
            .route("/health", get(health))
            .route("/ready", get(ready))
            .route("/status", get(status))
            .route("/metrics", get(metrics))
            .route(RESOURCE_METADATA, get(resource_metadata))
            .route(&format!("{RESOURCE_METADATA}/{{*path}}"), get(resource_metadata))
            .fallback(nowhere)
            .with_state(Arc::clone(&http_state));
        HttpService { http_state, rest }
    }

    /// Refuses pages of other origins that are not listed. An allowed page may read the answers, and asks without a token what it may ask.
    async fn guarded(&self, from: Origin, request: Request) -> Response {
        let headers = request.headers();
        let Ok(host) = asked_host(request.uri(), headers) else {
            let happened = "the request has several `Host` headers".to_owned();
            let hint = "send one `Host` header";
            let refusal =
                refused(from.peer, StatusCode::BAD_REQUEST, FaultKind::InvalidRequest, happened, hint);
            return of_stranger(&self.http_state.access_policy().access, refusal);
        };
        let origin = headers.get(header::ORIGIN);
        let page = origin.map(|origin| origin.to_str().unwrap_or_default());
        let arrived = from.arrived.map(|address| address.ip());
        let asked = RequestOrigins { host, page, arrived, is_by_tls: from.speaks_tls };
        if !self.http_state.access_policy().hosts.allow(&asked) {
            let happened = format!(
                "unhang does not accept a request for the host `{}`{}",
                host.unwrap_or_default().escape_debug(),
                page.map_or_else(String::new, |page| format!(" from a page of `{}`", page.escape_debug()))
            );
            let hint = "use the address that unhang listens on, or list the host in allowed-hosts and the origin \
                of the page in allowed-origins, under [http] of unhang.toml";
            let refusal =
                refused(from.peer, StatusCode::FORBIDDEN, FaultKind::InvalidRequest, happened, hint);
            return of_stranger(&self.http_state.access_policy().access, refusal);
        }
        let Some(origin) = origin.cloned() else { return self.admitted(from, request).await };
        let is_question = request.method() == Method::OPTIONS;
        let requested_headers = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut response = match is_question {
            true => {
                of_stranger(&self.http_state.access_policy().access, StatusCode::NO_CONTENT.into_response())
            }
            false => self.admitted(from, request).await,
        };
        let mut may = |name: HeaderName, value: HeaderValue| response.headers_mut().insert(name, value);
        may(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        may(header::VARY, HeaderValue::from_static("Origin"));
        may(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        if is_question {
            may(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
            if let Some(requested_headers) = requested_headers {
                may(header::ACCESS_CONTROL_ALLOW_HEADERS, requested_headers);
            }
        }
        response
    }

    /// Serves callers who may ask. A request counts for its caller until the answer is taken.
    async fn admitted(&self, from: Origin, mut request: Request) -> Response {
        let (caller, share) =
            match admitted(&self.http_state, from.peer, request.uri().path(), request.headers()).await {
                Ok(Some(admitted)) => admitted,
                Ok(None) => {
                    let response = self.rest.answer(from, request).await;
                    return of_stranger(&self.http_state.access_policy().access, response);
                }
                Err(refusal) => return *refusal,
            };
        let is_message = request.method() == Method::POST && request.uri().path() == PATH;
        let response = if is_message {
            posted(&self.http_state, from.peer, caller, request).await
        } else {
            request.extensions_mut().insert(caller);
            self.rest.answer(from, request).await
        };
        counted(response, share)
    }
}

impl HttpHandler for HttpService {
    async fn answer(&self, from: Origin, request: Request) -> Response {
        let response = self.guarded(from, request).await;
        self.http_state.context.tally.responded(response.status().as_u16());
        response
    }
}
