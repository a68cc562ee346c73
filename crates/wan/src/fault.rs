//! Failures, described for users.

use std::fmt;

/// A failure: what happened, what to do, and the exit code.
#[derive(Debug)]
pub struct Fault {
    message: String,
    hint: Option<String>,
    kind: Kind,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something failed that should have worked.
    Failed,
    /// The request is invalid.
    Usage,
    /// This host cannot do it: a permission or a part of the kernel is missing.
    Unavailable,
}

impl Fault {
    /// Returns a failure of something that should have worked.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, kind: Kind::Failed }
    }

    /// Returns a failure for an invalid request.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, kind: Kind::Usage }
    }

    /// Returns a failure for a host that cannot do it; `hint` says what is missing.
    pub fn unavailable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()), kind: Kind::Unavailable }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The kind of this failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code of the process: 1 failed, 2 usage, 11 not possible on this host.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unavailable => 11,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
