//! The layer among the layers that axum applications usually have, from axum 0.8 and tower-http 0.7: outside of it, inside of it, and
//! wherever axum takes a layer.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, OriginalUri, Path, State};
use axum::http::{HeaderName, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::{BodyExt, Full};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http::ServiceBuilderExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::request_id::MakeRequestUuid;
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::scheme::{self, Template};
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

use crate::support::logs::Logs;
use crate::support::{self, HEADER};

const LONG: Duration = Duration::from_secs(60);

fn layer() -> WebhookLayer {
    WebhookLayer::new(support::scheme(), MemoryStore::new())
}

/// Answers with the id and the number of signed bytes, long enough to be compressed.
async fn on_event(event: WebhookEvent, body: Bytes) -> String {
    assert_eq!(event.body(), &body);
    format!("{} {}", event.id(), "x".repeat(1_000))
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, LONG)
}

/// Delivers an event twice, and once with a forged signature, to `path`.
async fn works<S, B>(app: S, path: &str)
where
    S: Service<Request<Body>, Response = Response<B>, Error: std::fmt::Debug> + Clone,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let sender = TestSender::new(support::scheme()).uri(path);
    let send = async |request: Request<Body>| {
        let response = app.clone().oneshot(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (head.status, head.extensions.get::<Outcome>().cloned(), body)
    };
    let event = sender.deliver(r#"{"id":"evt_1"}"#);
    let (status, outcome, body) = send(event.request_as()).await;
    assert_eq!((status, outcome), (StatusCode::OK, Some(Outcome::Completed)), "{path}");
    assert!(!body.is_empty(), "the handler's answer comes through");
    let (status, outcome, body) = send(event.request_as()).await;
    assert_eq!((status, outcome, body), (StatusCode::OK, Some(Outcome::Duplicate), Bytes::new()), "{path}");
    let mut forged: Request<Body> = sender.deliver(r#"{"id":"evt_2"}"#).request_as();
    forged.headers_mut().remove(HEADER);
    let (status, outcome, _) = send(forged).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    let kind = outcome.and_then(|outcome| outcome.rejection().map(Rejection::kind));
    assert_eq!(kind, Some(RejectionKind::MissingSignature), "{path}");
}

#[tokio::test]
async fn layers_of_tower_http_outside_of_it() {
    let id = HeaderName::from_static("x-request-id");
    let stack = ServiceBuilder::new()
        .set_request_id(id.clone(), MakeRequestUuid)
        .layer(SetSensitiveRequestHeadersLayer::new([HeaderName::from_static(HEADER)]))
        .layer(TraceLayer::new_for_http())
        .layer(CatchPanicLayer::new())
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(CompressionLayer::new())
        .layer(RequestBodyLimitLayer::new(64 * 1024))
        .propagate_request_id(id)
        .layer(layer());
    works(Router::new().route("/webhooks", post(on_event)).layer(stack), "/webhooks").await;
}

#[tokio::test]
async fn timeout_right_outside_of_it() {
    let stack = ServiceBuilder::new().layer(timeout()).layer(layer());
    works(Router::new().route("/webhooks", post(on_event)).layer(stack), "/webhooks").await;
    let stack = ServiceBuilder::new().layer(timeout()).layer(layer()).service_fn(answer);
    works(stack, "/webhooks").await;
}

#[tokio::test]
async fn layers_of_tower_http_inside_of_it() {
    let stack = ServiceBuilder::new()
        .layer(layer())
        .layer(TraceLayer::new_for_http())
        .layer(CatchPanicLayer::new())
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(CompressionLayer::new())
        .layer(RequestBodyLimitLayer::new(64 * 1024));
    works(Router::new().route("/webhooks", post(on_event)).layer(stack), "/webhooks").await;
}

#[tokio::test]
async fn layers_of_tower_http_on_both_sides_of_it() {
    let inside = Router::new().route("/webhooks", post(on_event)).layer((TraceLayer::new_for_http(), timeout()));
    let app = inside.layer(layer()).layer((TraceLayer::new_for_http(), timeout(), CompressionLayer::new()));
    works(app, "/webhooks").await;
}

#[tokio::test]
async fn body_limit_outside_of_it_refuses_what_is_too_large() {
    let stack = ServiceBuilder::new().layer(RequestBodyLimitLayer::new(1024)).layer(layer());
    let app: Router = Router::new().route("/webhooks", post(on_event)).layer(DefaultBodyLimit::disable()).layer(stack);
    let body = format!(r#"{{"id":"evt_1","pad":"{}"}}"#, "x".repeat(4096));
    let request: Request<Body> = TestSender::new(support::scheme()).uri("/webhooks").deliver(body).request_as();
    // Without the length, so that it is the body that runs into the limit.
    let (mut head, body) = request.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let frames = Body::from_stream(body.into_data_stream());
    let response = app.oneshot(Request::from_parts(head, frames)).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn handler_that_panics_inside_of_a_catching_layer_is_released() {
    async fn panics(_: WebhookEvent) {
        panic!("the handler fails");
    }
    let stack = ServiceBuilder::new().layer(layer()).layer(CatchPanicLayer::new());
    let app: Router = Router::new().route("/webhooks", post(panics)).layer(stack);
    let request: Request<Body> =
        TestSender::new(support::scheme()).uri("/webhooks").deliver(r#"{"id":"evt_1"}"#).request_as();
    let response = app.oneshot(request).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(response.extensions().get(), Some(&Outcome::Released));
}

#[tokio::test]
async fn nested_routers_with_a_state_and_a_fallback() {
    #[derive(Clone)]
    struct App {
        greeting: &'static str,
    }
    async fn greets(State(app): State<App>, OriginalUri(uri): OriginalUri, event: WebhookEvent) -> String {
        format!("{} {} at {}", app.greeting, event.id(), uri.path())
    }
    let webhooks = Router::new().route("/stripe", post(greets)).layer(layer());
    let api = Router::new().nest("/webhooks", webhooks).fallback(async || StatusCode::NOT_FOUND);
    let app = Router::new()
        .nest("/api", api)
        .route("/health", get(async || "ok"))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(App { greeting: "hello" });
    works(app.clone(), "/api/webhooks/stripe").await;
    let elsewhere = Request::post("/api/webhooks/other").body(Body::empty()).expect("a request");
    let refused = app.clone().oneshot(elsewhere).await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::NOT_FOUND, "no route, and so nothing to verify");
    let health = Request::get("/health").body(Body::empty()).expect("a request");
    assert_eq!(app.oneshot(health).await.expect("an answer").status(), StatusCode::OK);
}

#[tokio::test]
async fn layer_of_a_route_leaves_the_others_alone() {
    let app: Router = Router::new()
        .route("/webhooks", post(on_event))
        .route_layer(layer())
        .route("/other", post(async || "not a webhook"));
    works(app.clone(), "/webhooks").await;
    let other = Request::post("/other").body(Body::empty()).expect("a request");
    assert_eq!(app.oneshot(other).await.expect("an answer").status(), StatusCode::OK);
    let method: Router = Router::new().route("/webhooks", post(on_event).layer(layer()).get(async || "a page"));
    works(method.clone(), "/webhooks").await;
    let page = Request::get("/webhooks").body(Body::empty()).expect("a request");
    assert_eq!(method.oneshot(page).await.expect("an answer").status(), StatusCode::OK);
}

#[tokio::test]
async fn extractors_and_extensions_work_as_ever() {
    #[derive(Clone)]
    struct Region(&'static str);
    async fn all(
        Path(region): Path<String>,
        Extension(Region(own)): Extension<Region>,
        event: WebhookEvent,
        Json(value): Json<serde_json::Value>,
    ) -> Result<impl IntoResponse, StatusCode> {
        (region == own && value["id"] == event.id()).then_some("all of it").ok_or(StatusCode::BAD_REQUEST)
    }
    let app: Router =
        Router::new().route("/webhooks/{region}", post(all)).layer(layer()).layer(Extension(Region("eu")));
    works(app, "/webhooks/eu").await;
}

#[tokio::test]
async fn router_inside_of_a_tower_service() {
    let router = Router::new().route("/webhooks", post(on_event));
    works(layer().layer(router.clone()), "/webhooks").await;
    let normalized = ServiceBuilder::new().layer(NormalizePathLayer::trim_trailing_slash()).layer(layer());
    works(normalized.service(router.clone()), "/webhooks/").await;
    let boxed: BoxCloneService<Request<Body>, Response, Infallible> = ServiceBuilder::new()
        .boxed_clone()
        .map_response(IntoResponse::into_response)
        .layer(timeout())
        .layer(layer())
        .service(router);
    works(boxed, "/webhooks").await;
}

#[tokio::test]
async fn route_service_and_nest_service() {
    let service = ServiceBuilder::new().layer(layer()).service_fn(answer);
    works(Router::new().route_service("/webhooks", service.clone()), "/webhooks").await;
    works(Router::new().nest_service("/webhooks", service), "/webhooks/stripe").await;
}

async fn answer(request: Request<Full<Bytes>>) -> Result<Response, Infallible> {
    let id = request.extensions().get::<WebhookEvent>().expect("an event").id().to_owned();
    Ok(id.into_response())
}

/// The tenants `acme` and `b c`, whose secrets are `whsec_` and their names.
fn tenants() -> TenantSecrets {
    TenantSecrets::by_path("tenant", async |tenant: String| {
        let known = ["acme", "b c"].contains(&&*tenant);
        Ok(known.then(|| Secret::new(format!("whsec_{tenant}"))).transpose()?.map(|secret| vec![secret]))
    })
}

#[tokio::test]
async fn tenants_by_a_parameter_of_the_path() {
    async fn on_event(event: WebhookEvent) -> String {
        format!("{} of {}", event.id(), event.tenant().unwrap_or("nobody"))
    }
    let scheme = scheme::timestamped(tenants()).expect("secrets");
    let layer = WebhookLayer::new(scheme, MemoryStore::new());
    let flat = Router::new().route("/webhooks/{tenant}/stripe", post(on_event)).layer(layer.clone());
    let nested = Router::new().route("/{tenant}/stripe", post(on_event)).layer(layer.clone());
    let prefixed = Router::new().route("/stripe", post(on_event)).layer(layer.clone());
    let apps: [Router; 5] = [
        flat,
        Router::new().nest("/webhooks", nested),
        Router::new().nest("/webhooks/{tenant}", prefixed.clone()),
        Router::new().nest("/webhooks", Router::new().nest("/{tenant}", prefixed)),
        Router::new().nest("/webhooks/{tenant}/stripe", Router::new().route("/", post(on_event)).layer(layer.clone())),
    ];
    for (number, app) in apps.into_iter().enumerate() {
        let send = async |path: &str, secret: &str| {
            let sender = TestSender::new(scheme::timestamped(secret).expect("a secret")).uri(path);
            let event = sender.deliver(format!(r#"{{"id":"evt_{number}"}}"#));
            let response = app.clone().oneshot(event.request()).await.expect("an answer");
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            (status, String::from_utf8(body.to_vec()).expect("text"))
        };
        let handled = |tenant| (StatusCode::OK, format!("evt_{number} of {tenant}"));
        let refused = (StatusCode::UNAUTHORIZED, String::new());
        assert_eq!(send("/webhooks/acme/stripe", "whsec_acme").await, handled("acme"), "{number}");
        assert_eq!(send("/webhooks/b%20c/stripe", "whsec_b c").await, handled("b c"), "one id, another tenant");
        assert_eq!(send("/webhooks/%61cme/stripe", "whsec_acme").await, (StatusCode::OK, String::new()), "a duplicate");
        assert_eq!(send("/webhooks/acme/stripe", "whsec_b c").await, refused, "{number}");
        assert_eq!(send("/webhooks/nobody/stripe", "whsec_nobody").await, refused, "{number}");
        assert_eq!(send("/webhooks/%ff/stripe", "whsec_acme").await, refused, "{number}");
    }
    // A prefix that something other than axum has stripped: route and path are not of one another.
    let inner = Router::new().route("/{tenant}/stripe", post(on_event)).layer(layer.clone());
    let stripping = ServiceBuilder::new()
        .map_request(|mut request: Request<Body>| {
            *request.uri_mut() = Uri::from_static("/acme/stripe");
            request
        })
        .service(inner);
    let app: Router = Router::new().fallback_service(stripping);
    for path in ["/b%20c/acme/stripe", "/acme/acme/stripe"] {
        let sender = TestSender::new(scheme::timestamped("whsec_b c").expect("a secret")).uri(path);
        let answer = app.clone().oneshot(sender.deliver(r#"{"id":"evt_x"}"#).request()).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    // Around a router instead of on it, the layer does not know the route.
    let around = layer.layer(Router::new().route("/webhooks/{tenant}", post(on_event)));
    let sender = TestSender::new(scheme::timestamped("whsec_acme").expect("a secret")).uri("/webhooks/acme");
    let answer = around.oneshot(sender.deliver(r#"{"id":"evt_1"}"#).request()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
}

/// Its endpoints have the scheme's name if nothing else names them.
async fn warns_of_a_shared_name(name: &'static str, apps: impl IntoIterator<Item = (Router, &str)>) -> usize {
    let (logs, _guard) = Logs::capture();
    let scheme = || Template::builder(name).signature("x-signature", "{hex}").build("whsec_x").expect("a scheme");
    for (app, path) in apps {
        let event = TestSender::new(scheme()).uri(path).deliver(r#"{"id":"evt_1"}"#);
        for _ in 0..2 {
            let answer = app.clone().oneshot(event.request()).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::OK);
        }
    }
    logs.count("two endpoints have the scheme's name")
}

#[tokio::test]
async fn endpoints_that_share_the_schemes_name_are_warned_about() {
    let layer = |name| {
        let scheme = Template::builder(name).signature("x-signature", "{hex}").build("whsec_x").expect("a scheme");
        WebhookLayer::new(scheme, MemoryStore::new())
    };
    let service = |layer: WebhookLayer| layer.layer(tower::service_fn(answer));

    let one = Router::new().nest_service("/a", service(layer("one endpoint")));
    assert_eq!(warns_of_a_shared_name("one endpoint", [(one.clone(), "/a/x"), (one, "/a/y")]).await, 0);

    let shared = layer("one layer, two prefixes");
    let two = Router::new().nest_service("/a", service(shared.clone())).nest_service("/b", service(shared));
    assert_eq!(warns_of_a_shared_name("one layer, two prefixes", [(two.clone(), "/a/x"), (two, "/b/x")]).await, 1);

    let (a, b) = (layer("two layers"), layer("two layers"));
    let two = Router::new().nest_service("/a", service(a)).nest_service("/b", service(b));
    assert_eq!(warns_of_a_shared_name("two layers", [(two.clone(), "/a/x"), (two, "/b/x")]).await, 1);

    let named = |name| layer("two names").endpoint(name).expect("a name");
    let two = Router::new().nest_service("/a", service(named("a"))).nest_service("/b", service(named("b")));
    assert_eq!(warns_of_a_shared_name("two names", [(two.clone(), "/a/x"), (two, "/b/x")]).await, 0);

    let two = layer("two routes");
    let routes = Router::new().route("/a", post(async || ())).route("/b", post(async || ())).layer(two);
    assert_eq!(warns_of_a_shared_name("two routes", [(routes.clone(), "/a"), (routes, "/b")]).await, 0);
}
