//! The caller's end of a request.

use super::request::Event;
use tokio::sync::mpsc;

/// Hears a request's events. Dropping it cancels the request.
#[derive(Debug)]
pub struct Receiver {
    events: mpsc::UnboundedReceiver<Event>,
}

/// The engine's end. At most `max_tokens + 2` events ever wait in it.
pub(super) type Events = mpsc::UnboundedSender<Event>;

pub(super) fn channel() -> (Events, Receiver) {
    let (sender, events) = mpsc::unbounded_channel();
    (sender, Receiver { events })
}

impl Receiver {
    /// The next event; none after the last, or when the engine ended without one.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The same for threads that may block.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }

    /// The next event if it is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}
