//! Effect and completion in one transaction, on real databases: at most one effect per event, full stop, and none of an event
//! that was acknowledged is missing.

mod cases;
mod ledger;
mod receiver;
mod storm;

/// Every case on one database.
macro_rules! on {
    ($database:ty) => {
        crate::exactly_once::tests_on! { $database:
            effect_and_completion_are_committed_together,
            rollback_takes_the_completion_back_and_the_retry_runs,
            forgotten_commit_is_a_500_and_the_retry_runs,
            success_after_a_rollback_is_a_500,
            transaction_that_is_still_open_makes_it_a_503,
            failure_after_the_commit_is_passed_on_and_the_retry_is_a_duplicate,
            panic_in_the_transaction_leaves_nothing_behind,
            completion_can_be_enlisted_again_after_a_rollback,
            completion_cannot_be_enlisted_again_after_the_commit,
            permanent_failure_after_a_rollback_is_remembered,
            zombie_cannot_enlist_and_its_client_gets_a_503,
            open_transaction_holds_the_event_after_the_lease,
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn every_acknowledged_event_took_effect_exactly_once() {
            crate::exactly_once::storm::every_acknowledged_event_took_effect_exactly_once::<$database>().await;
        }
    };
}
use on;

macro_rules! tests_on {
    ($database:ty: $($case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                crate::exactly_once::cases::$case::<$database>().await;
            }
        )*
    };
}
use tests_on;

mod postgres {
    mod database;
    mod isolation;
    mod killed;
    mod unknown_commit;

    super::on!(database::Database);
}

mod sqlite {
    mod database;
    mod write_lock;

    super::on!(database::Database);
}
