//! Sends notifications by email: the one channel of the host itself, because plugins have no sockets.
//!
//! The library lettre writes messages and speaks SMTP. The connection is made by `egress`, so that the certificate of
//! a mail server is verified as that of a target: by the system's authorities, a CA file or a fingerprint.
//!
//! - [`Settings`] are the sender, the recipients and the encryption, checked.
//! - [`Account`] is a channel that can send.
//! - `message` writes a notification as a message, `wire` is the connection.
//!
//! Invariant: a password is sent over TLS only, and no error contains it.

#![forbid(unsafe_code)]

mod message;
mod settings;
mod wire;

pub use settings::{Problem, Settings};

use egress::{Egress, Grant, OriginGrant};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Severity;
use model::{Cause, Failure, FailureCategory, Notification, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use settings::Encryption;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use wire::Wire;

/// The name of the secret with the password.
pub const PASSWORD: &str = "password";
/// The shown length of a server's answer in characters.
const REASON: usize = 300;
/// The mechanisms of a log-in. Both send the password, inside TLS.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// A mail server, with everything that a message needs.
#[derive(Debug)]
pub struct Account {
    /// The network access. The first origin is the server: a connection has TLS from the start if the origin says so,
    /// else from STARTTLS on.
    pub grant: Arc<Grant>,
    /// The checked settings.
    pub settings: Settings,
    /// The password, if the server requires one.
    pub password: Option<SecretString>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Egress(#[from] egress::Error),
    #[error("{server} did not complete the message within {after:?}: check that it speaks SMTP")]
    Timeout { server: String, after: Duration },
    #[error("{server} does not offer STARTTLS: use smtps:// if it has TLS from the start, or another port")]
    NoTls { server: String },
    #[error("{server} answered {answer:?}, which is not SMTP: check the port")]
    NotSmtp { server: String, answer: String },
    #[error("{server} refuses the user {user:?} ({code}): check the user and the secret password")]
    Unauthorized { server: String, user: String, code: String },
    #[error(
        "{server} offers no log-in with a password here: leave out user and password if it needs none, or use another \
         port"
    )]
    NoLogIn { server: String },
    #[error("{server} refuses the recipient {recipient}: {why}")]
    RefusedRecipient { server: String, recipient: String, why: String, is_transient: bool },
    #[error("{server} refuses the message: {why}")]
    Refused { server: String, why: String, is_transient: bool },
    #[error("the connection to {server} broke: {why}")]
    Broken { server: String, why: String },
    #[error("the message cannot be written: {0}")]
    Unwritable(#[from] lettre::error::Error),
}

impl Error {
    fn failure(self) -> Failure {
        let (code, is_transient) = match &self {
            Self::Egress(error) => (error.code().to_owned(), error.retryable()),
            Self::Timeout { .. } => ("timeout".to_owned(), true),
            Self::NoTls { .. } => ("tls_missing".to_owned(), false),
            Self::NotSmtp { .. } => ("protocol".to_owned(), true),
            Self::Unauthorized { .. } | Self::NoLogIn { .. } => ("unauthorized".to_owned(), false),
            Self::Refused { is_transient, .. } | Self::RefusedRecipient { is_transient, .. } => {
                ("forbidden".to_owned(), *is_transient)
            }
            Self::Broken { .. } => ("closed".to_owned(), true),
            Self::Unwritable(_) => ("bad_request".to_owned(), false),
        };
        let category = match self {
            _ if is_transient => FailureCategory::Transient,
            Self::Unwritable(_) => FailureCategory::Permanent,
            _ => FailureCategory::Misconfigured,
        };
        Failure { category, code, cause: Cause::Other, message: self.to_string(), retry_after: None }
    }
}

impl Account {
    /// Sends one notification, within `longest`. Returns why some of the recipients were refused, if others were not.
    ///
    /// # Errors
    /// The failure, which is transient if another attempt may succeed. The password in its message is masked.
    pub async fn send(
        &self,
        egress: &Egress,
        notification: &Notification,
        now: Timestamp,
        longest: Duration,
    ) -> Result<Option<String>, Failure> {
        let sent = tokio::time::timeout(longest, self.deliver(egress, notification, now)).await;
        let late = Error::Timeout { server: self.name(), after: longest };
        let masked = async |text: String| self.grant.secrets.masked(text).await;
        match sent.unwrap_or(Err(late)).map_err(Error::failure) {
            Ok(None) => Ok(None),
            Ok(Some(refused)) => Ok(Some(masked(refused.to_string()).await)),
            Err(failure) => Err(Failure { message: masked(failure.message).await, ..failure }),
        }
    }

    fn server(&self) -> &OriginGrant {
        &self.grant.origins[0]
    }

    fn name(&self) -> String {
        let origin = &self.server().origin;
        format!("the mail server {}:{}", origin.host, origin.port)
    }

    /// Returns the first refusal of a recipient, if another one was accepted.
    async fn deliver(
        &self,
        egress: &Egress,
        notification: &Notification,
        now: Timestamp,
    ) -> Result<Option<Error>, Error> {
        let message = message::compose(&self.settings, notification, now)?;
        let hello = ClientId::default();
        let stream = self.connect(egress, &hello).await?;
        let broken = |error| self.describe(error);
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &hello).await.map_err(broken)?;
        if let (Some(user), Some(password)) = (&self.settings.user, &self.password) {
            if connection.server_info().get_auth_mechanism(&MECHANISMS).is_none() {
                return Err(Error::NoLogIn { server: self.name() });
            }
            let credentials = Credentials::new(user.clone(), password.expose_secret().to_owned());
            let accepted = connection.auth(&MECHANISMS, &credentials).await;
            accepted.map_err(|error| match error.is_permanent() {
                true => Error::Unauthorized { server: self.name(), user: user.clone(), code: code(&error) },
                false => self.describe(error),
            })?;
        }
        let envelope = message.envelope();
        connection.command(Mail::new(envelope.from().cloned(), Vec::new())).await.map_err(broken)?;
        let (mut is_accepted, mut refused): (_, Option<Error>) = (false, None);
        for recipient in envelope.to() {
            match connection.command(Rcpt::new(recipient.clone(), Vec::new())).await {
                Ok(_) => is_accepted = true,
                // The others get the message all the same.
                Err(error) if error.status().is_some() => {
                    let (is_temporary, reason) = (error.is_transient(), reason(&error));
                    refused = Some(match refused {
                        Some(Error::RefusedRecipient { server, recipient: first, why, is_transient }) => {
                            let why = format!("{why}, and {recipient}: {reason}");
                            let is_transient = is_transient && is_temporary;
                            Error::RefusedRecipient { server, recipient: first, why, is_transient }
                        }
                        _ => Error::RefusedRecipient {
                            server: self.name(),
                            recipient: recipient.to_string(),
                            why: reason,
                            is_transient: is_temporary,
                        },
                    });
                }
                Err(error) => return Err(self.describe(error)),
            }
        }
        if !is_accepted && let Some(refused) = refused {
            return Err(refused);
        }
        connection.command(Data).await.map_err(broken)?;
        let answer = connection.message(&message.formatted()).await.map_err(broken)?;
        if answer.code().severity != Severity::PositiveCompletion {
            let why = format!("{} at its end", answer.code());
            return Err(Error::Refused { server: self.name(), why, is_transient: true });
        }
        // The server has the message: a failure from here on would repeat it.
        let _ = connection.quit().await;
        Ok(refused)
    }

    /// Connects, with TLS from the start, after STARTTLS, or without.
    async fn connect(&self, egress: &Egress, hello: &ClientId) -> Result<Box<dyn AsyncTokioStream>, Error> {
        let server = self.server();
        let mut tcp = egress.dial(server, &self.grant.reach).await?;
        let peer = tcp.peer_addr().map_err(|error| self.broken(&error))?;
        if server.origin.https {
            return Ok(Box::new(Wire::new(egress::secure(server, tcp).await?, peer)));
        }
        if self.settings.encryption == Encryption::None {
            return Ok(Box::new(Wire::new(tcp, peer)));
        }
        self.start_tls(&mut tcp, hello).await?;
        Ok(Box::new(Wire::after_start_tls(egress::secure(server, tcp).await?, peer)))
    }

    /// Asks the server for TLS. What it sends before the handshake is not trusted and not kept.
    async fn start_tls(&self, tcp: &mut tokio::net::TcpStream, hello: &ClientId) -> Result<(), Error> {
        for (command, expected) in
            [(String::new(), "220"), (format!("EHLO {hello}\r\n"), "250"), ("STARTTLS\r\n".to_owned(), "220")]
        {
            let answer = wire::exchange(tcp, &command).await.map_err(|error| self.broken(&error))?;
            if !answer.starts_with(expected) {
                let server = self.name();
                return Err(match command.as_str() {
                    "STARTTLS\r\n" => Error::NoTls { server },
                    _ if answer.starts_with(['4', '5']) => {
                        Error::Refused { server, is_transient: answer.starts_with('4'), why: answer }
                    }
                    _ => Error::NotSmtp { server, answer },
                });
            }
        }
        Ok(())
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        Error::Broken { server: self.name(), why: error.to_string() }
    }

    fn describe(&self, error: smtp::Error) -> Error {
        let (server, why) = (self.name(), reason(&error));
        match error.status() {
            Some(_) => Error::Refused { server, why, is_transient: error.is_transient() },
            None if error.is_response() && why.contains("incomplete") => {
                Error::Broken { server, why: "it ended before an answer was complete".to_owned() }
            }
            None if error.is_response() => Error::NotSmtp { server, answer: why },
            None => Error::Broken { server, why },
        }
    }
}

/// The codes of an answer: the reply code, and the enhanced one of RFC 3463 if there is one. The text of the answer to
/// a log-in is not shown, because it may repeat what was sent.
fn code(error: &smtp::Error) -> String {
    let code = error.status().map(|code| code.to_string()).unwrap_or_default();
    let text = error.source().map(ToString::to_string).unwrap_or_default();
    let is_enhanced = |word: &&str| word.len() <= 9 && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    match text.split_whitespace().next().filter(is_enhanced) {
        Some(enhanced) => format!("{code} {enhanced}"),
        None => code,
    }
}

/// The reason of an error, with the server's code if it answered.
fn reason(error: &smtp::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON).collect();
    let text = text.trim().to_owned();
    match error.status() {
        Some(code) if !text.starts_with(&code.to_string()) => format!("{code} {text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
