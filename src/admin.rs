//! HTTP for people and machines that look after the relay: health, readiness, metrics, status.
//!
//! The latest `Status` and the metrics enter; answers leave. Nothing here asks PostgreSQL or Kafka anything, so a
//! slow server never makes a health check slow, and an outage of either never restarts the process.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use axum::extract::State as Shared;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};
use crate::metrics::{self, Metrics};
use crate::status::Status;

/// How long open connections may take to end after `shutdown`.
const GRACE: Duration = Duration::from_secs(1);

const INDEX: &str = concat!(
    "outboxd ",
    env!("CARGO_PKG_VERSION"),
    "

/healthz        the process works (also /livez)
/readyz         200 when events can flow or this one could take over, else 503 with the reasons
/metrics        for Prometheus
/api/v1/status  state, positions and lag
"
);

/// Opens the configured address.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        Error::definite(format!("cannot listen on {listen} for health and metrics"))
            .because(error)
            .hint("set http.listen to a free address, such as \"127.0.0.1:0\" for any free port")
    })
}

/// Answers requests until `shutdown` resolves.
pub async fn serve(
    listener: TcpListener,
    status: watch::Receiver<Status>,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let (leaving, left) = oneshot::channel();
    let server = axum::serve(listener, router(status, metrics)).with_graceful_shutdown(async {
        shutdown.await;
        // Nobody listens any more only when the server has already ended.
        leaving.send(()).unwrap_or_default();
    });
    // A client that keeps its connection open must not keep the relay from leaving.
    let grace = async {
        left.await.unwrap_or_default();
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = server.into_future() => ended.map_err(|error| Error::transient("the HTTP server failed").because(error)),
        () = grace => Ok(()),
    }
}

fn router(status: watch::Receiver<Status>, metrics: Metrics) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .route("/api/v1/status", get(report))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(View { status, metrics })
}

/// What handlers look at.
#[derive(Clone)]
struct View {
    status: watch::Receiver<Status>,
    metrics: Metrics,
}

async fn alive() -> Response {
    fresh(Json(json!({ "status": "alive", "version": env!("CARGO_PKG_VERSION") })))
}

async fn ready(Shared(view): Shared<View>) -> Response {
    let status = view.status.borrow();
    let code = if status.ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = Json(json!({
        "ready": status.ready(),
        "role": status.role,
        "state": status.state,
        "since": humantime::format_rfc3339_millis(status.since).to_string(),
        "reasons": status.obstacles(),
    }));
    fresh((code, answer))
}

async fn scrape(Shared(view): Shared<View>) -> Response {
    let text = view.metrics.render(&view.status.borrow(), SystemTime::now());
    fresh(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
}

async fn report(Shared(view): Shared<View>) -> Response {
    fresh(Json(view.status.borrow().report(SystemTime::now())))
}

async fn not_found(uri: Uri) -> Response {
    problem(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), "GET / lists what there is")
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()), "use GET")
}

/// Every answer is about now: no cache may keep it.
fn fresh(answer: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
}

/// An error as RFC 9457 tells it; without a `type` it means what its status code means.
fn problem(status: StatusCode, detail: String, hint: &str) -> Response {
    let title = status.canonical_reason();
    let body = json!({ "title": title, "status": status.as_u16(), "detail": detail, "hint": hint });
    fresh((status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::status::{Reason, Role, State};

    /// A server on a port of its own, with the ends that drive it.
    struct Running {
        address: SocketAddr,
        status: watch::Sender<Status>,
        stop: oneshot::Sender<()>,
        task: JoinHandle<Result<()>>,
    }

    async fn start() -> Running {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (status, receiver) = watch::channel(Status::example());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, receiver, Metrics::new(), async { stopped.await.unwrap_or_default() }));
        Running { address, status, stop, task }
    }

    impl Running {
        /// Status code, head and body of one answer.
        async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
            let mut socket = TcpStream::connect(self.address).await.unwrap();
            let request = format!("{method} {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head[9..12].parse().unwrap(), head.to_lowercase(), body.into())
        }

        async fn json(&self, path: &str) -> (u16, Value) {
            let (code, _, body) = self.ask("GET", path).await;
            (code, serde_json::from_str(&body).unwrap())
        }
    }

    #[tokio::test]
    async fn a_process_that_waits_for_kafka_is_alive_and_not_ready_and_says_why() {
        let server = start().await;
        assert_eq!(server.json("/readyz").await.0, 200);
        let reason = Reason {
            code: "topic_missing".into(),
            message: "topic \"x\" does not exist".into(),
            hint: Some("create it".into()),
        };
        let reasons = vec![reason];
        server.status.send_modify(|status| *status = Status { state: State::Waiting, reasons, ..status.clone() });
        let (code, body) = server.json("/readyz").await;
        assert_eq!(code, 503);
        let expected = json!({
            "ready": false, "role": "leader", "state": "waiting", "since": "1970-01-01T00:00:00.000Z",
            "reasons": [{ "code": "topic_missing", "message": "topic \"x\" does not exist", "hint": "create it" }],
        });
        assert_eq!(body, expected);
        for path in ["/healthz", "/livez"] {
            let (code, body) = server.json(path).await;
            assert_eq!((code, &body["status"]), (200, &json!("alive")));
        }
    }

    #[tokio::test]
    async fn a_standby_is_ready_to_take_over() {
        let server = start().await;
        server.status.send_modify(|status| (status.state, status.role) = (State::Standby, Role::Standby));
        let (code, body) = server.json("/readyz").await;
        assert_eq!((code, &body["role"], &body["ready"]), (200, &json!("standby"), &json!(true)));
    }

    #[tokio::test]
    async fn metrics_and_status_tell_the_age_of_now() {
        let server = start().await;
        let (code, head, body) = server.ask("GET", "/metrics").await;
        assert_eq!(code, 200);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
        assert!(body.contains("outboxd_lag_bytes 2000\n"));
        let (code, body) = server.json("/api/v1/status").await;
        assert_eq!((code, &body["slot"], &body["confirmed"]), (200, &json!("orders"), &json!("0/3E8")));
        assert!(body["lag_seconds"].as_f64().unwrap() > 1e9, "the example's event was committed in 1970");
    }

    #[tokio::test]
    async fn wrong_paths_and_methods_are_problems_that_say_what_to_do() {
        let server = start().await;
        let (code, head, body) = server.ask("GET", "/nowhere").await;
        assert_eq!(code, 404);
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(body.contains("there is nothing at /nowhere"), "{body}");
        let (code, head, _) = server.ask("POST", "/metrics").await;
        assert_eq!(code, 405);
        assert!(head.contains("allow: get,head"), "{head}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        let (code, _, body) = server.ask("GET", "/").await;
        assert_eq!(code, 200);
        assert!(body.contains("/readyz"));
        assert_eq!(server.ask("HEAD", "/healthz").await.0, 200);
    }

    #[tokio::test]
    async fn an_idle_client_does_not_keep_the_server_from_ending() {
        let server = start().await;
        let _idle = TcpStream::connect(server.address).await.unwrap();
        server.ask("GET", "/healthz").await;
        server.stop.send(()).unwrap();
        timeout(Duration::from_secs(5), server.task).await.expect("it ends").unwrap().unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }

    #[tokio::test]
    async fn an_address_in_use_is_a_definite_error_that_names_it() {
        let taken = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        assert!(error.is_definite());
        assert!(error.chain().contains(&address.to_string()), "{}", error.chain());
        assert!(error.hint_text().unwrap().contains("http.listen"));
    }
}
