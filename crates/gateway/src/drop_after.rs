//! Drops a future at each await in turn, for tests: after no poll, after one, after two, and so on until it completes.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Polls a future this many times, then drops it. Returns its output, or `None` if it was dropped.
pub(crate) struct DropAfter<F> {
    inner: Option<Pin<Box<F>>>,
    polls_left: usize,
}

impl<F: Future> DropAfter<F> {
    pub(crate) fn new(polls: usize, future: F) -> Self {
        Self { inner: Some(Box::pin(future)), polls_left: polls }
    }
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            self.inner = None;
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = inner.as_mut().poll(context).map(Some);
        self.polls_left -= 1;
        if polled.is_pending() && self.polls_left == 0 {
            // Like a task whose other branch is ready: the next poll drops this one.
            context.waker().wake_by_ref();
        }
        polled
    }
}
