//~ a completion cannot be enlisted in
//~ begin a transaction with `let mut tx = pool.begin().await?`, and pass `&mut tx`

use tower_webhook::{HandlerError, WebhookEvent};

pub async fn on_event<D: sqlx::Database>(event: WebhookEvent, pool: sqlx::Pool<D>) -> Result<(), HandlerError> {
    event.complete_in(&mut pool.clone()).await?;
    Ok(())
}
