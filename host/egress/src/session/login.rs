//! Requests that answer the challenges of their server.

use super::{Sending, Session};
use crate::Error;
use crate::authentication::{Login, authorization};
use crate::in_flight::{Plan, Raw};
use crate::maskers::Maskers;
use crate::plan::Planned;
use crate::reading::Visible;
use hyper::header::AUTHORIZATION;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The header in which a server proves that it knows the password of Digest authentication: it is derived from it.
const PROOF: &str = "authentication-info";
/// The status of an answer that asks for authentication.
const UNAUTHORIZED: u16 = 401;

impl Session {
    /// Sends a request that answers the challenges of its server.
    pub(super) async fn send_with_login(
        &self,
        login: Login,
        Planned { mut plan, reading, mut derived, .. }: Planned,
        of: Sending<'_>,
    ) -> Result<(Raw, Arc<Visible>), Error> {
        let (challenges, origin) = (&self.captured.challenges, plan.destination.origin.to_string());
        let authorize = |plan: &mut Plan, derived: &mut Vec<String>| -> Result<bool, Error> {
            let request = (&plan.method, plan.path_and_query.as_str());
            let Some(answer) = challenges.answer(&origin, &login, request) else { return Ok(false) };
            derived.extend(answer.derived().map(str::to_owned));
            plan.headers.insert(AUTHORIZATION, authorization(&answer.header)?);
            plan.visible = Arc::new(Visible::of(&reading, Maskers::new(&self.grant, derived)));
            Ok(true)
        };
        authorize(&mut plan, &mut derived)?;
        let visible = plan.visible.clone();
        let mut raw = self.send_once(plan.clone(), of).await?;
        raw.headers.retain(|(name, _)| name != PROOF);
        if raw.status != UNAUTHORIZED {
            return Ok((raw, visible));
        }
        match challenges.learn(&origin, &raw.headers) {
            // Servers lock accounts after a few wrong passwords, so a poll offers one once.
            Ok(true) if !self.login_refused.load(Ordering::Relaxed) => {}
            Ok(_) => return Ok((raw, visible)),
            Err(error) => return Err(Box::pin(visible.maskers().error(error)).await),
        }
        if !authorize(&mut plan, &mut derived)? {
            return Ok((raw, visible));
        }
        drop(raw);
        self.count_request()?;
        self.count_sent(&plan)?;
        let visible = plan.visible.clone();
        let mut raw = self.send_once(plan, of).await?;
        raw.headers.retain(|(name, _)| name != PROOF);
        if raw.status == UNAUTHORIZED {
            // The password is wrong. The next poll must not offer it before the server asks for it.
            challenges.forget(&origin);
            self.login_refused.store(true, Ordering::Relaxed);
        }
        Ok((raw, visible))
    }
}
