//! A request of the client, between its arrival and its way to the server or to the local job server.

use std::{borrow::Cow, ops::Range, time::Duration};

use unhang_core::{batch::BatchId, refusal::Addressee};
use unhang_wire::{Body, Id, Json, Message, Piece, read};

/// A request as it came, with the data that is needed to judge it.
pub(super) struct WrapRequest<'a> {
    pub id: Id,
    pub id_span: Range<usize>,
    pub method: Cow<'a, str>,
    pub params: Option<Json<'a>>,
    pub raw: &'a [u8],
    pub batch: Option<BatchId>,
    /// When it came.
    pub since: Duration,
}

impl WrapRequest<'_> {
    /// Returns the addressee of an answer in place of the server's.
    pub(super) fn addressee(&self) -> Addressee<'_> {
        Addressee::request(&self.id, &self.method, self.batch)
    }
}

/// A request that waits until the names of our tools are known, because the server may have a tool of that name.
#[derive(Debug)]
pub(super) struct UndecidedRequest {
    pub(super) id: Id,
    line: Vec<u8>,
    batch: Option<BatchId>,
    since: Duration,
}

impl UndecidedRequest {
    pub(super) fn new(request: &WrapRequest<'_>) -> Self {
        let WrapRequest { id, raw, batch, since, .. } = request;
        UndecidedRequest { id: id.clone(), line: raw.to_vec(), batch: *batch, since: *since }
    }

    /// Returns the bytes of memory that the request takes.
    pub(super) fn bytes(&self) -> usize {
        self.line.len()
    }

    /// Reads the request again, which is one.
    pub(super) fn requests(&self) -> impl Iterator<Item = WrapRequest<'_>> {
        read(&self.line).filter_map(|piece| match piece {
            Piece::Message(Message { raw, body: Body::Request { id, id_span, method, params } }) => {
                Some(WrapRequest { id, id_span, method, params, raw, batch: self.batch, since: self.since })
            }
            _ => None,
        })
    }
}
