//! The token that the admin listener's clients must send, if one is configured.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use entresol_service::config::AdminToken;
use subtle::{Choice, ConstantTimeEq};

/// Name of the user for programs that ask for one, as browsers do.
const USER: &str = "entresol";
/// Way to authenticate that a browser offers its user.
const CHALLENGE: &str = "Basic realm=\"entresol\"";

/// Values of the header `Authorization` that admit.
#[derive(Debug, Clone)]
pub(super) struct Admitted(Arc<[String; 2]>);

impl Admitted {
    /// Values for a token; an empty one, which was not read, admits no client.
    pub(super) fn by(token: &AdminToken) -> Admitted {
        let secret = &token.secret;
        let basic = STANDARD.encode(format!("{USER}:{secret}"));
        Admitted(Arc::new(match secret.is_empty() {
            true => [String::new(), String::new()],
            false => [format!("Bearer {secret}"), format!("Basic {basic}")],
        }))
    }

    /// Returns true if the headers have one of the values. The time tells nothing of the secret.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(header::AUTHORIZATION) else { return false };
        let equal = |value: &String| value.as_bytes().ct_eq(given.as_bytes());
        let admitted = self.0.iter().fold(Choice::from(0), |any, value| any | equal(value));
        bool::from(admitted) && !given.is_empty()
    }

    /// Answers a request, or refuses it.
    pub(super) async fn answer(self, request: Request, next: Next) -> Response {
        if self.admits(request.headers()) {
            return next.run(request).await;
        }
        let challenge = [(header::WWW_AUTHENTICATE, CHALLENGE)];
        (StatusCode::UNAUTHORIZED, challenge, "the token of the admin listener is needed\n")
            .into_response()
    }
}
