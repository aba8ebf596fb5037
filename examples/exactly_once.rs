//! Two providers whose events change one balance, exactly once: effect and completion are one transaction.
//!
//! ```text
//! cargo run --example exactly_once --features sqlite                      # balance.db
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/stripe --count 100 --duplicates 3
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/paddle --scheme paddle --count 50
//! curl http://127.0.0.1:3000/balance                                      # 150, however often you killed it meanwhile
//! ```
//!
//! On Postgres it is the same: `PgPool`, `PostgresStore::new(pool)`, and `pool.begin()`.

use axum::extract::State;
use axum::{Json, Router, routing::get, routing::post};
use tower_webhook::sqlx::{self, SqlitePool, sqlite::SqliteConnectOptions};
use tower_webhook::store::SqliteStore;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let path = std::env::var("DATABASE").unwrap_or_else(|_| "balance.db".to_owned());
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path).create_if_missing(true)).await?;
    sqlx::query(TABLE).execute(&pool).await?;
    sqlx::query("INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING").execute(&pool).await?;

    // The events are in the database that the handlers write to. That is what makes it exact.
    let store = SqliteStore::new(&pool).await?;
    let stripe = WebhookLayer::new(scheme::stripe("whsec_demo_secret")?, store.clone());
    let paddle = WebhookLayer::new(scheme::paddle("whsec_demo_secret")?, store);
    let app = Router::new()
        .route("/webhooks/stripe", post(on_payment).layer(stripe))
        .route("/webhooks/paddle", post(on_payment).layer(paddle))
        .route("/balance", get(balance))
        .with_state(pool);

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn on_payment(State(pool): State<SqlitePool>, event: WebhookEvent) -> Result<(), HandlerError> {
    // Takes the write lock at the beginning, and not in the middle. On Postgres: `pool.begin()`.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    // First: it fails if another delivery holds the event by now, before anything is done.
    event.complete_in(&mut tx).await?;
    sqlx::query("UPDATE account SET balance = balance + 1").execute(&mut *tx).await?;
    // Both are committed, or neither is. If the commit's answer gets lost, the layer asks the store what happened.
    tx.commit().await?;
    Ok(())
}

async fn balance(State(pool): State<SqlitePool>) -> Result<Json<i64>, HandlerError> {
    Ok(Json(sqlx::query_scalar("SELECT balance FROM account").fetch_one(&pool).await?))
}
