//! Questions that a server asks about a request, for whoever made that request for somebody else.

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::fault::Kind;

/// What comes of a question: a result as JSON, or the code and the message of an error.
pub type Replied = Result<String, (i32, String)>;

/// Where questions go.
pub(crate) type Questions = mpsc::Sender<Question>;

/// A question that waits for its answer. Dropped, it is declined.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub method: String,
    /// What it is asked with.
    pub params: Option<Box<RawValue>>,
    /// Who waits for the answer.
    pub reply: oneshot::Sender<Replied>,
}

/// Asks whoever made a request, and gives what they answer; why nobody does where that is so. Cancel-safe.
pub(crate) async fn ask(questions: &Questions, method: String, params: Option<Box<RawValue>>) -> Replied {
    let (reply, replied) = oneshot::channel();
    let nobody = || {
        (
            Kind::MethodNotFound.code(),
            format!("`{method}` is declined: nobody waits for the request any more"),
        )
    };
    let question = Question { method: method.clone(), params, reply };
    questions.send(question).await.map_err(|_| nobody())?;
    replied.await.unwrap_or_else(|_| Err(nobody()))
}
