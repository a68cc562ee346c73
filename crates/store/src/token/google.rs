//! Google's credential files: `authorized_user`, `external_account` (workload identity federation, AIP-4117) and
//! `impersonated_service_account`. Service accounts stay with `object_store`, also as the source of an impersonation.

use super::request::{Ask, form};
use super::{Token, TokenClient, TokenSource};
use crate::error::innermost;
use crate::rest::{parse_rfc3339, unix_now_ms};
use async_trait::async_trait;
use base64::Engine;
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Lifetime of a token whose server states none, and of impersonated ones.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(3600);

/// A credential file of any of these types.
pub(crate) struct GoogleFile {
    /// Path of the file, for errors.
    path: String,
    client: Arc<TokenClient>,
    account: Account,
}

enum Account {
    User(User),
    External(Box<External>),
    Impersonated(Box<Impersonated>),
    Service(GcpCredentialProvider),
}

#[derive(Deserialize)]
struct User {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct External {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: Subject,
    service_account_impersonation_url: Option<String>,
    service_account_impersonation: Option<Lifetime>,
    client_id: Option<String>,
    client_secret: Option<String>,
    workforce_pool_user_project: Option<String>,
}

#[derive(Deserialize)]
struct Lifetime {
    token_lifetime_seconds: Option<u64>,
}

/// The source of the other identity provider's token.
#[derive(Deserialize)]
struct Subject {
    file: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    format: Format,
    executable: Option<Value>,
    environment_id: Option<String>,
    certificate: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Format {
    r#type: Option<String>,
    subject_token_field_name: Option<String>,
}

struct Impersonated {
    url: String,
    delegates: Vec<String>,
    lifetime: Duration,
    source: GoogleFile,
}

#[derive(Deserialize)]
struct OauthAnswer {
    access_token: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImpersonationAnswer {
    access_token: String,
    expire_time: String,
}

impl GoogleFile {
    /// Parses the JSON of a credential file.
    ///
    /// # Errors
    /// One line that names the file, for an unsupported type or a missing field.
    pub(crate) fn parse(path: &str, file: Value, client: Arc<TokenClient>) -> Result<Self, String> {
        Self::parse_nested(path, file, client, true)
    }

    fn parse_nested(path: &str, mut file: Value, client: Arc<TokenClient>, is_outer: bool) -> Result<Self, String> {
        let account = match file["type"].as_str().unwrap_or_default() {
            "authorized_user" => Account::User(fields(path, file)?),
            "external_account" => Account::External(Box::new(external(path, file)?)),
            "impersonated_service_account" if is_outer => {
                let text = |name: &str| file[name].as_str().map(str::to_owned);
                let url = text("service_account_impersonation_url")
                    .ok_or_else(|| format!("{path}: missing field `service_account_impersonation_url`"))?;
                let delegates = file["delegates"].as_array().into_iter().flatten();
                let delegates = delegates.filter_map(Value::as_str).map(str::to_owned).collect();
                let source = Self::parse_nested(path, file["source_credentials"].take(), Arc::clone(&client), false)?;
                let lifetime = LIFETIME_DEFAULT;
                Account::Impersonated(Box::new(Impersonated { url, delegates, lifetime, source }))
            }
            "service_account" => Account::Service(service_account(path, &file)?),
            "" => return Err(format!("{path}: not a Google credential file: it has no field `type`")),
            other => {
                return Err(format!(
                    "{path}: credentials of type `{}` are not supported here; use a service account, `gcloud auth \
                     application-default login`, workload identity federation or impersonation",
                    other.escape_debug()
                ));
            }
        };
        Ok(Self { path: path.to_owned(), client, account })
    }

    async fn of_user(&self, user: &User) -> Result<Token, String> {
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", &user.client_id),
            ("client_secret", &user.client_secret),
            ("refresh_token", &user.refresh_token),
        ];
        let ask = Ask {
            place: &format!("{}: token_uri", self.path),
            url: user.token_uri.as_deref().unwrap_or(TOKEN_URL),
            headers: vec![],
            body: form(&fields),
            secrets: vec![&user.client_secret, &user.refresh_token],
            needs_tls: true,
        };
        Ok(self.client.json::<OauthAnswer>(&ask).await?.into())
    }

    /// Exchanges the other identity provider's token at the Security Token Service.
    async fn of_external(&self, account: &External) -> Result<Token, String> {
        let subject = self.subject_token(&account.credential_source).await?;
        let options = account.workforce_pool_user_project.as_ref().filter(|_| account.client_id.is_none());
        let options = options.map(|project| json!({ "userProject": project }).to_string());
        let mut fields = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", &account.audience),
            ("scope", SCOPE),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", &account.subject_token_type),
            ("subject_token", &subject),
        ];
        fields.extend(options.as_deref().map(|options| ("options", options)));
        let secret = account.client_secret.as_deref().unwrap_or_default();
        let login = account.client_id.as_ref().map(|id| {
            let login = base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"));
            ("authorization".to_owned(), format!("Basic {login}"))
        });
        let ask = Ask {
            place: &format!("{}: token_url", self.path),
            url: &account.token_url,
            headers: login.into_iter().collect(),
            body: form(&fields),
            secrets: vec![&subject, secret],
            needs_tls: true,
        };
        let token: Token = self.client.json::<OauthAnswer>(&ask).await?.into();
        let Some(url) = &account.service_account_impersonation_url else { return Ok(token) };
        let lifetime = account.service_account_impersonation.as_ref().and_then(|given| given.token_lifetime_seconds);
        let lifetime = lifetime.map_or(LIFETIME_DEFAULT, Duration::from_secs);
        self.impersonate(url, &[], lifetime, &token.secret).await
    }

    async fn subject_token(&self, source: &Subject) -> Result<String, String> {
        let (place, text) = match (&source.file, &source.url) {
            (Some(file), _) => {
                let place = format!("{file} (named by {})", self.path);
                (place.clone(), tokio::fs::read_to_string(file).await.map_err(|error| format!("{place}: {error}"))?)
            }
            (None, Some(url)) => {
                let place = format!("{}: credential_source.url", self.path);
                let headers: Vec<_> = source.headers.clone().into_iter().collect();
                let secrets = source.headers.values().map(String::as_str).collect();
                // Often a server on the machine's own network, such as instance metadata.
                let ask = Ask { place: &place, url, headers, body: None, secrets, needs_tls: false };
                let text = self.client.text(&ask).await?;
                (place, text)
            }
            (None, None) => return Err(format!("{}: credential_source names neither file nor url", self.path)),
        };
        let token = match source.format.r#type.as_deref() {
            Some("json") => {
                let name = source.format.subject_token_field_name.as_deref().unwrap_or_default();
                let answer: Value = serde_json::from_str(&text).map_err(|_| format!("{place}: not JSON"))?;
                answer[name].as_str().map(str::to_owned).ok_or_else(|| format!("{place}: no field `{name}`"))?
            }
            _ => text.trim().to_owned(),
        };
        if token.is_empty() { Err(format!("{place}: empty token")) } else { Ok(token) }
    }

    /// Requests a token of a service account, with a token that may impersonate it.
    async fn impersonate(
        &self,
        url: &str,
        delegates: &[String],
        lifetime: Duration,
        token: &str,
    ) -> Result<Token, String> {
        let body = json!({ "scope": [SCOPE], "delegates": delegates, "lifetime": format!("{}s", lifetime.as_secs()) });
        let ask = Ask {
            place: &format!("{}: service_account_impersonation_url", self.path),
            url,
            headers: vec![("authorization".to_owned(), format!("Bearer {token}"))],
            body: Some(("application/json", body.to_string())),
            secrets: vec![token],
            needs_tls: true,
        };
        let answer: ImpersonationAnswer = self.client.json(&ask).await?;
        // The server states an absolute time. If this machine's clock is wrong, the lifetime could seem too long.
        let left_ms = parse_rfc3339(&answer.expire_time).map_or(0, |expires_ms| expires_ms - unix_now_ms());
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)).min(lifetime);
        Ok(Token { secret: answer.access_token, lifetime: left })
    }
}

#[async_trait]
impl TokenSource for GoogleFile {
    async fn fetch(&self) -> Result<Token, String> {
        match &self.account {
            Account::User(user) => self.of_user(user).await,
            Account::External(account) => self.of_external(account).await,
            Account::Impersonated(account) => {
                let token = account.source.fetch().await?;
                self.impersonate(&account.url, &account.delegates, account.lifetime, &token.secret).await
            }
            Account::Service(provider) => {
                let credential = provider.get_credential().await;
                let credential = credential.map_err(|error| format!("{}: {}", self.path, innermost(&error)))?;
                Ok(Token { secret: credential.bearer.clone(), lifetime: LIFETIME_DEFAULT })
            }
        }
    }
}

impl From<OauthAnswer> for Token {
    fn from(answer: OauthAnswer) -> Self {
        let lifetime = answer.expires_in.map_or(LIFETIME_DEFAULT, Duration::from_secs);
        Self { secret: answer.access_token, lifetime }
    }
}

fn external(path: &str, file: Value) -> Result<External, String> {
    let account: External = fields(path, file)?;
    let source = &account.credential_source;
    let unsupported = if source.executable.is_some() {
        Some("executable")
    } else if source.environment_id.is_some() {
        Some("environment_id")
    } else if source.certificate.is_some() {
        Some("certificate")
    } else {
        None
    };
    match unsupported {
        Some(name) => {
            Err(format!("{path}: credential_source.{name} is not supported here; use a subject token from file or url"))
        }
        None => Ok(account),
    }
}

fn service_account(path: &str, file: &Value) -> Result<GcpCredentialProvider, String> {
    let builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name("unused")
        .with_service_account_key(file.to_string())
        .with_http_connector(super::LibraryClient);
    let store = builder.build().map_err(|error| format!("{path}: {}", innermost(&error)))?;
    Ok(Arc::clone(store.credentials()))
}

/// Parses the fields of one type. The parser's error names a missing field and never repeats a value.
fn fields<T: serde::de::DeserializeOwned>(path: &str, file: Value) -> Result<T, String> {
    serde_json::from_value(file).map_err(|error| {
        let error = error.to_string();
        match error.starts_with("missing field") {
            true => format!("{path}: {error}"),
            false => format!("{path}: a field has the wrong type"),
        }
    })
}
