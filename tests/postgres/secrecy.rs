//! A password is nowhere to be read.

use std::error::Error;
use std::fmt::Write;

use tower_webhook::store::{ClaimRequest, ClaimToken, PostgresStore, Store, StoreError};

use crate::postgres::fixture::{PATIENCE, WEEK, key};
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::logs::Logs;
use crate::support::servers::postgres::{PostgresServer, Settings};

const RIGHT: &str = "correct horse battery";
const WRONG: &str = "hunter2hunter2";

/// Everything that an error says, to people and to programmers.
fn all_of(error: &StoreError) -> String {
    let mut text = format!("{error:?} {error:#?}");
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        write!(text, " {error} {error:?}").expect("a string takes everything");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn password_is_in_no_error_no_debug_and_no_log() {
    let (logs, _guard) = Logs::capture();
    let mut server = PostgresServer::start_with(Settings::default().password(RIGHT));
    let receiver = Receiver::on(&server).await;
    assert!(receiver.deliver("evt_1").await.status.is_success(), "the right password lets in");

    let wrong = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(server.options().password(WRONG));
    let store = PostgresStore::builder(wrong.clone()).deadline(PATIENCE).expect("a deadline").build();
    let key = key("evt_2");
    let request = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
    let refused = store.claim(&request).await.expect_err("the wrong password");
    assert!(all_of(&refused).contains("password authentication failed"), "{refused:?}");
    let migrated = store.migrate().await.expect_err("the wrong password");
    let purged = store.purge().await.expect_err("the wrong password");
    assert_unavailable(&Receiver::with_pool(wrong.clone()).deliver("evt_3").await);
    server.kill();
    let down = receiver.store.claim(&request).await.expect_err("no server");
    assert_unavailable(&receiver.deliver("evt_4").await);

    let builder = format!("{:?} {store:?} {:#?}", PostgresStore::builder(wrong), receiver.layer);
    let told: String = logs.lines().iter().map(|line| line.text.as_str()).collect();
    assert!(told.contains("password authentication failed"), "the operator is told why");
    for text in [all_of(&refused), all_of(&migrated), all_of(&purged), all_of(&down), builder, told] {
        assert!(!text.contains(RIGHT) && !text.contains(WRONG), "{text}");
    }
}
