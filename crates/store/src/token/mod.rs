//! OAuth tokens that neither `object_store` nor `aws-config` can obtain: requested over HTTP, cached, and renewed
//! before they expire. No secret is ever part of an error or of debug output.

pub(crate) mod azure;
pub(crate) mod boundary;
pub(crate) mod google;
mod library;
pub(crate) mod request;

pub(crate) use library::LibraryClient;
pub(crate) use request::TokenClient;

use crate::scope::RENEW_BEFORE;
use async_trait::async_trait;
use object_store::CredentialProvider;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// A token is renewed after this time, whatever lifetime its server states.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A variable of the environment; an empty one counts as unset.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A token and its remaining lifetime.
pub(crate) struct Token {
    secret: String,
    lifetime: Duration,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// A source of new tokens. Errors are one line that names the file or variable.
#[async_trait]
pub(crate) trait TokenSource: Send + Sync {
    /// Requests a new token.
    async fn fetch(&self) -> Result<Token, String>;
}

/// A token source for `object_store` and the stores. One caller renews the token while the others wait.
pub(crate) struct Renewing<C> {
    source: Box<dyn TokenSource>,
    credential: fn(String) -> C,
    held: Mutex<Option<(Arc<C>, Expiry)>>,
}

/// When a token expires, by two clocks; the earlier end counts. `Instant` stops while the machine is suspended, and the
/// system's time may be set back.
#[derive(Clone, Copy, Debug)]
struct Expiry {
    awake: Instant,
    system: SystemTime,
}

impl Expiry {
    fn after(lifetime: Duration) -> Self {
        let lifetime = lifetime.min(LIFETIME_MAX);
        Self { awake: Instant::now() + lifetime, system: SystemTime::now() + lifetime }
    }

    /// The time for which the token is still valid.
    fn left(&self) -> Duration {
        let left = self.system.duration_since(SystemTime::now()).unwrap_or_default();
        left.min(self.awake.saturating_duration_since(Instant::now()))
    }
}

impl<C> Renewing<C> {
    pub(crate) fn new(source: impl TokenSource + 'static, credential: fn(String) -> C) -> Self {
        Self { source: Box::new(source), credential, held: Mutex::new(None) }
    }
}

impl<C> fmt::Debug for Renewing<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewing")
    }
}

#[async_trait]
impl<C: Send + Sync> CredentialProvider for Renewing<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let mut held = self.held.lock().await;
        if let Some((credential, expires)) = held.as_ref()
            && expires.left() > RENEW_BEFORE
        {
            return Ok(Arc::clone(credential));
        }
        match self.source.fetch().await {
            Ok(token) => {
                let credential = Arc::new((self.credential)(token.secret));
                *held = Some((Arc::clone(&credential), Expiry::after(token.lifetime)));
                Ok(credential)
            }
            // The server failed, but the token is still valid for some minutes.
            Err(why) => match held.as_ref().filter(|(_, expires)| !expires.left().is_zero()) {
                Some((credential, _)) => Ok(Arc::clone(credential)),
                None => Err(object_store::Error::Generic { store: "credentials", source: why.into() }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Gives out one token with a given lifetime, then fails.
    struct Once(AtomicU32, Duration);

    #[async_trait]
    impl TokenSource for Once {
        async fn fetch(&self) -> Result<Token, String> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(Token { secret: "the-token".to_owned(), lifetime: self.1 }),
                _ => Err("the server is gone".to_owned()),
            }
        }
    }

    #[tokio::test]
    async fn a_token_is_used_until_it_expires_if_it_cannot_be_renewed() {
        let short = Renewing::new(Once(AtomicU32::new(0), Duration::from_secs(200)), |token| token);
        assert_eq!(*short.get_credential().await.unwrap(), "the-token");
        assert_eq!(*short.get_credential().await.unwrap(), "the-token", "still valid");
        let expired = Renewing::new(Once(AtomicU32::new(0), Duration::ZERO), |token| token);
        assert_eq!(*expired.get_credential().await.unwrap(), "the-token");
        assert!(expired.get_credential().await.unwrap_err().to_string().contains("the server is gone"));
        assert_eq!(format!("{expired:?}"), "Renewing");
    }

    /// A machine that wakes up after an hour has the `Instant` of before, but not the system's time.
    #[tokio::test]
    async fn a_token_that_expired_while_the_machine_was_suspended_is_not_used() {
        let hour = Duration::from_secs(3600);
        let renewing = Renewing::new(Once(AtomicU32::new(0), hour), |token| token);
        assert_eq!(*renewing.get_credential().await.unwrap(), "the-token");
        assert_eq!(*renewing.get_credential().await.unwrap(), "the-token", "still valid");
        renewing.held.lock().await.as_mut().unwrap().1.system -= hour;
        assert!(renewing.get_credential().await.unwrap_err().to_string().contains("the server is gone"));
    }

    #[tokio::test]
    async fn a_lifetime_without_end_is_shortened() {
        let renewing = Renewing::new(Once(AtomicU32::new(0), Duration::MAX), |token| token);
        assert_eq!(*renewing.get_credential().await.unwrap(), "the-token");
        assert!(renewing.held.lock().await.as_ref().unwrap().1.left() <= LIFETIME_MAX);
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token { secret: "the-token".to_owned(), lifetime: Duration::from_secs(1) };
        assert!(!format!("{token:?}").contains("the-token"));
    }
}
