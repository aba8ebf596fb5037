//! The stores by their addresses.

use std::error::Error;
use std::sync::Arc;

use tower_webhook::queue::Queue;
use tower_webhook::store::MemoryStore;

type Opened = Result<Arc<dyn Queue>, Box<dyn Error>>;

/// `memory`, `sqlite:PATH`, `redis://…` or `postgres://…`; the last one maybe `pooled`, through a transaction pooler.
pub(crate) async fn open(address: &str, pooled: bool) -> Opened {
    match address.split_once(':') {
        None if address == "memory" => Ok(Arc::new(MemoryStore::new())),
        Some(("sqlite", path)) => sqlite(path).await,
        Some(("redis" | "rediss", _)) => redis(address).await,
        Some(("postgres" | "postgresql", _)) => postgres(address, pooled).await,
        _ => {
            Err(format!("{address:?} is none of memory, sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE")
                .into())
        }
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &str) -> Opened {
    let store = tower_webhook::store::SqliteStore::open(path).await?;
    // What it finds is told through `tracing`, and so on the console.
    store.check().await?;
    Ok(Arc::new(store))
}

#[cfg(feature = "redis")]
async fn redis(address: &str) -> Opened {
    use deadpool_redis::{Config, Runtime};
    let pool = Config::from_url(address).create_pool(Some(Runtime::Tokio1))?;
    let store = tower_webhook::store::RedisStore::new(pool);
    // What it finds is told through `tracing`, and so on the console.
    store.check().await?;
    Ok(Arc::new(store))
}

#[cfg(feature = "postgres")]
async fn postgres(address: &str, pooled: bool) -> Opened {
    use std::time::Duration;

    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
    use tower_webhook::store::PostgresStore;
    let options: PgConnectOptions = address.parse()?;
    // Connected lazily, so that it is the store that says what is wrong.
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(5));
    let store = match pooled {
        // Poolers refuse startup parameters that they do not know.
        true => PostgresStore::builder(pool.connect_lazy_with(options.extra_float_digits(None))).pooled(),
        false => PostgresStore::builder(pool.connect_lazy_with(options)),
    };
    let store = store.build();
    store.migrate().await?;
    // What it finds is told through `tracing`, and so on the console.
    store.check().await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str) -> Opened {
    Err("this needs `--features sqlite` before the `--`".into())
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str) -> Opened {
    Err("this needs `--features redis` before the `--`".into())
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str, _: bool) -> Opened {
    Err("this needs `--features postgres` before the `--`".into())
}
