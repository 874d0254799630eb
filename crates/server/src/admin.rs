//! HTTP admin listener: metrics, health, statistics and the sharing dashboard.
//!
//! Runs on a thread of its own, so no tenant's request ever waits for it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use entresol_service::registry::Registry;
use entresol_service::sharing::Sharing;
use tokio::sync::oneshot;

use crate::{metrics, view};

/// Page served at `/`. The only thing it fetches is `/sharing.json`.
const DASHBOARD: &str = include_str!("dashboard.html");
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
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async {
                let listener = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => {
                        tracing::error!(%error, "cannot start the admin listener");
                        return;
                    }
                };
                let serve = axum::serve(listener, routes(registry, sharing)).into_future();
                let serving = tokio::spawn(serve);
                // An error means that the sender is gone, which also means to stop.
                let _ = stopped.await;
                serving.abort();
            });
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(run)?;
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
                if for_health.is_healthy() {
                    (StatusCode::OK, "ok\n")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "an event loop has ended\n")
                }
            }),
        )
}

fn page(text: &'static str) -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
    ([kind, (header::CONTENT_SECURITY_POLICY, DASHBOARD_MAY)], text)
}

fn typed(kind: &'static str, text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}
