//! HTTP admin listener: metrics, health, statistics and the sharing dashboard.
//!
//! Runs on a thread of its own, so no tenant's request ever waits for it.

mod accept;
mod token;

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use entresol_service::config::AdminToken;
use entresol_service::registry::Registry;
use entresol_service::sharing::Sharing;
use entresol_service::threads;
use tokio::sync::oneshot;

use crate::{metrics, view};
use accept::Accept;
use token::Admitted;

/// Page served at `/`. The only thing it fetches is `/sharing.json`.
const DASHBOARD: &str = include_str!("../dashboard.html");
/// Content security policy of the page: the browser loads nothing from another origin.
const DASHBOARD_MAY: &str = "default-src 'none'; connect-src 'self'; \
                             style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Running listener; stops when dropped.
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Serves on `listener`, which is already bound.
    pub(crate) fn start(
        listener: TcpListener,
        registry: Arc<Registry>,
        sharing: Arc<Sharing>,
        token: Option<&AdminToken>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let supervisor = Arc::clone(&registry);
        let admitted = token.map(Admitted::by);
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
                let accept = Accept::new(listener, Arc::clone(&registry.clock));
                let mut routes = routes(Arc::clone(&registry), Arc::clone(&sharing));
                if let Some(admitted) = admitted.clone() {
                    let answer = move |request, next| admitted.clone().answer(request, next);
                    routes = routes.layer(middleware::from_fn(answer));
                }
                let mut serving = pin!(axum::serve(accept, routes).into_future());
                poll_fn(|context| match pin!(&mut stopped).poll(context) {
                    // An error means that the sender is gone, which also means to stop.
                    Poll::Ready(_) => Poll::Ready(Ok(())),
                    Poll::Pending => serving.as_mut().poll(context),
                })
                .await
            })
        };
        let thread = threads::supervised("admin", supervisor, run)?;
        Ok(Admin { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin thread panicked");
        }
    }
}

fn routes(registry: Arc<Registry>, sharing: Arc<Sharing>) -> Router {
    let both = (Arc::clone(&registry), sharing);
    let (for_metrics, for_sharing) = (both.clone(), both);
    let (for_health, for_json) = (Arc::clone(&registry), registry);
    Router::new()
        .route("/", get(|| async { page(DASHBOARD) }))
        .route(
            "/sharing.json",
            get(move || async move {
                let (registry, sharing) = &for_sharing;
                typed("application/json", view::json(registry, sharing))
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                let (registry, sharing) = &for_metrics;
                let text = metrics::prometheus(registry, sharing);
                typed("text/plain; version=0.0.4; charset=utf-8", text)
            }),
        )
        .route("/stats.json", {
            get(move || async move { typed("application/json", metrics::json(&for_json)) })
        })
        .route(
            "/healthz",
            get(move || async move {
                let status = match for_health.is_healthy() {
                    true => StatusCode::OK,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                };
                (status, health(&for_health))
            }),
        )
}

/// Health of the server's threads, in words.
fn health(registry: &Registry) -> String {
    let state = if registry.is_healthy() { "ok" } else { "an event loop has ended" };
    let mut text = format!("{state}\n");
    for (thread, times) in registry.panics() {
        text += &format!("thread '{thread}' has panicked, {times} times since the start\n");
    }
    text
}

fn page(text: &'static str) -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
    ([kind, (header::CONTENT_SECURITY_POLICY, DASHBOARD_MAY)], text)
}

fn typed(kind: &'static str, text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}
