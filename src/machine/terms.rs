use std::time::Duration;

/// What a front-end asks of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) retention: Duration,
    pub(crate) wait: Duration,
    pub(crate) claim_deadline: Duration,
    pub(crate) ready_wait: Duration,
    pub(crate) max_running: usize,
    pub(crate) max_waiting_per_key: usize,
    pub(crate) detach: bool,
    pub(crate) drop_when_lost: bool,
    /// Nobody waits for an answer: a store that cannot be told how the work ended is waited for.
    pub(crate) settle_in_place: bool,
    pub(crate) body_change: BodyChange,
}

/// What to do with an id that comes again under another body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyChange {
    Duplicate,
    Refuse,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(7 * 24 * 3600),
            wait: Duration::from_secs(5),
            claim_deadline: Duration::from_secs(2),
            ready_wait: Duration::from_secs(5),
            max_running: 1024,
            max_waiting_per_key: 64,
            detach: true,
            drop_when_lost: false,
            settle_in_place: false,
            body_change: BodyChange::Duplicate,
        }
    }
}
