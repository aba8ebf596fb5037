//! The value under an event's key.
//!
//! `state:token:fingerprint:text`, in ASCII up to the text. The state is `r` for a running claim, and the text its
//! event type; `c` for a completed and `f` for a failed event, and the text its summary; `a` for an event that is
//! waiting or running in a queue. Token and fingerprint are base64, since Redis stores a value of up to 44 bytes in one
//! allocation instead of two.
//!
//! The text of a queued event begins with `@arrival attempts time `, see [`Progress`].

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint};

/// The length of state and token with their colons: the part that a script compares.
const HOLDER: usize = 2 + 22 + 1;
const HEAD: usize = HOLDER + 11 + 1;

/// The longest lease or retention: Redis can still add it to its clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The beginning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Claimed by a receiver, which runs it.
    Running,
    /// Waiting or running in a queue.
    Queued,
    Completed,
    /// Given up for good; in a queue, a dead letter.
    Failed,
}

/// The text of a queued event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress<'a> {
    pub(super) arrival: u64,
    pub(super) attempts: u32,
    /// When the event is due, was leased, or ended, in milliseconds since 1970.
    pub(super) time: i64,
    /// `w` while the event waits and `r` while it runs, also with a lapsed lease; then `o` if it is in an order, `s` if
    /// its handler was started, and behind a space, while it runs, the time since which it was due. After it has ended,
    /// the summary.
    pub(super) rest: &'a str,
}

/// A value under one of this store's keys that the store did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl Record {
    pub(super) fn read(value: &[u8]) -> Result<Self, Unreadable> {
        let head: &[u8; HEAD] = value.first_chunk().ok_or(Unreadable)?;
        let [state, b':', rest @ ..] = head else { return Err(Unreadable) };
        let (token, rest) = rest.split_at(22);
        let [b':', fingerprint @ .., b':'] = rest else { return Err(Unreadable) };
        Ok(Self {
            state: match state {
                b'r' => State::Running,
                b'a' => State::Queued,
                b'c' => State::Completed,
                b'f' => State::Failed,
                _ => return Err(Unreadable),
            },
            token: read_token(token)?,
            fingerprint: read_fingerprint(fingerprint)?,
        })
    }

    /// The answer to a claim that finds this record.
    pub(super) fn as_claim(&self, fingerprint: Fingerprint) -> Claim {
        let same_body = self.fingerprint == fingerprint;
        match self.state {
            State::Running => Claim::InFlight { same_body },
            State::Queued => Claim::Accepted { same_body },
            State::Completed | State::Failed => Claim::Completed { same_body },
        }
    }
}

impl<'a> Progress<'a> {
    /// Reads a value; `None` if the event is not from a queue.
    pub(super) fn read(value: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(value.get(HEAD..)?).ok()?.strip_prefix('@')?;
        let mut words = text.splitn(4, ' ');
        Some(Self {
            arrival: words.next()?.parse().ok()?,
            attempts: words.next()?.parse().ok()?,
            time: words.next()?.parse().ok()?,
            rest: words.next()?,
        })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.rest.starts_with('w')
    }
}

/// The first bytes of a worker's tokens.
const LEASED: [u8; 2] = [0x1e, 0xa5];

/// How many bytes the tokens of one lease share: a multiple of three, so that their texts share whole characters.
const SHARED: usize = 12;

/// Makes the tokens for the events of one lease. The first two bytes say that the token holds an event of the queue,
/// which saves a question to the server. The next ten are random and identify the lease, the last four the event.
pub(super) fn leased_tokens(count: usize) -> Vec<ClaimToken> {
    let lease = *ClaimToken::random().as_bytes();
    let token = |_| {
        let mut bytes = *ClaimToken::random().as_bytes();
        bytes[..SHARED].copy_from_slice(&lease[..SHARED]);
        bytes[..LEASED.len()].copy_from_slice(&LEASED);
        ClaimToken::from_bytes(bytes)
    };
    (0..count).map(token).collect()
}

/// The prefix that the texts of all tokens of a lease share.
pub(super) fn lease_of(token: ClaimToken) -> String {
    URL_SAFE_NO_PAD.encode(&token.as_bytes()[..SHARED])
}

/// Whether a token is probably one of [`leased_tokens`]; so is one of 65,536 others.
pub(super) fn is_leased(token: ClaimToken) -> bool {
    token.as_bytes().starts_with(&LEASED)
}

/// The text of a token in a record.
pub(super) fn token(token: ClaimToken) -> String {
    URL_SAFE_NO_PAD.encode(token.as_bytes())
}

pub(super) fn read_token(text: &[u8]) -> Result<ClaimToken, Unreadable> {
    Ok(ClaimToken::from_bytes(decode(text)?))
}

/// The text of a fingerprint in a record.
pub(super) fn fingerprint(fingerprint: Fingerprint) -> String {
    URL_SAFE_NO_PAD.encode(fingerprint.as_u64().to_be_bytes())
}

pub(super) fn read_fingerprint(text: &[u8]) -> Result<Fingerprint, Unreadable> {
    Ok(Fingerprint::from_u64(u64::from_be_bytes(decode(text)?)))
}

/// The value of a queued event up to its [`Progress`], which the script appends.
pub(super) fn queued(claim: &ClaimRequest<'_>) -> String {
    write('a', claim, "")
}

/// The value of a running claim.
pub(super) fn running(claim: &ClaimRequest<'_>) -> String {
    write('r', claim, claim.event_type.unwrap_or_default())
}

/// The value of a settled claim.
pub(super) fn settled(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> String {
    write(if completion.failed { 'f' } else { 'c' }, claim, completion.summary)
}

/// The prefix of a running claim under this token, whatever its fingerprint.
pub(super) fn holder(token: ClaimToken) -> String {
    format!("r:{}:", self::token(token))
}

/// A time to live for Redis: whole milliseconds, at least one.
pub(super) fn milliseconds(time: Duration) -> u64 {
    let time = time.min(LONGEST);
    time.as_nanos().div_ceil(1_000_000).max(1) as u64
}

fn write(state: char, claim: &ClaimRequest<'_>, text: &str) -> String {
    format!("{state}:{}:{}:{text}", token(claim.token), fingerprint(claim.fingerprint))
}

fn decode<const N: usize>(text: &[u8]) -> Result<[u8; N], Unreadable> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Unreadable)?;
    bytes.try_into().map_err(|_| Unreadable)
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value under the store's prefix is not one of its records: give the store a prefix of its own")
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKey;

    fn claim(key: &EventKey, byte: u8) -> ClaimRequest<'_> {
        let fingerprint = Fingerprint::from_u64(u64::from_be_bytes([byte; 8]));
        ClaimRequest::new(key, ClaimToken::from_bytes([byte; 16]), LONGEST).fingerprint(fingerprint)
    }

    #[test]
    fn records_come_back_as_written() {
        let key = EventKey::new("/hook", None, "evt_1");
        for byte in 0..=255 {
            let claim = claim(&key, byte).event_type(Some("invoice.paid"));
            let expected = Record { state: State::Running, token: claim.token, fingerprint: claim.fingerprint };
            assert_eq!(Record::read(running(&claim).as_bytes()), Ok(expected));
            assert_eq!(Record::read(queued(&claim).as_bytes()), Ok(Record { state: State::Queued, ..expected }));
            for (completion, state) in [
                (Completion::succeeded("OK", LONGEST), State::Completed),
                (Completion::failed("é:☃", LONGEST), State::Failed),
            ] {
                let read = Record::read(settled(&claim, &completion).as_bytes());
                assert_eq!(read, Ok(Record { state, ..expected }));
            }
        }
    }

    #[test]
    fn running_claims_begin_with_their_holder_and_settled_ones_do_not() {
        let key = EventKey::new("/hook", None, "evt_1");
        let claim = claim(&key, 7);
        assert!(running(&claim).starts_with(&holder(claim.token)));
        assert!(!settled(&claim, &Completion::succeeded("OK", LONGEST)).starts_with(&holder(claim.token)));
    }

    #[test]
    fn an_ordinary_record_fits_one_allocation() {
        let key = EventKey::new("/hook", None, "evt_1");
        assert!(settled(&claim(&key, 7), &Completion::succeeded("Created", LONGEST)).len() <= 44);
    }

    #[test]
    fn progress_of_a_queued_event_is_told_from_a_summary() {
        let key = EventKey::new("/hook", None, "evt_1");
        let claim = claim(&key, 7);
        let value = queued(&claim) + "@1700000000000000012 3 1700000000500 two words";
        let progress =
            Progress { arrival: 1_700_000_000_000_000_012, attempts: 3, time: 1_700_000_000_500, rest: "two words" };
        assert_eq!(Progress::read(value.as_bytes()), Some(progress));
        for completion in
            [Completion::succeeded("200 OK", LONGEST), Completion::failed("@ nine o'clock, or so", LONGEST)]
        {
            assert_eq!(Progress::read(settled(&claim, &completion).as_bytes()), None);
        }
    }

    #[test]
    fn tokens_of_leased_events_are_known_again() {
        let tokens = leased_tokens(2);
        assert!(is_leased(tokens[0]) && is_leased(tokens[1]) && tokens[0] != tokens[1]);
        assert!(!is_leased(ClaimToken::from_bytes([7; 16])));
    }

    #[test]
    fn tokens_of_one_lease_are_told_from_those_of_another() {
        let (one, other) = (leased_tokens(2), leased_tokens(1));
        let lease = lease_of(one[0]);
        assert!(one.iter().all(|of_lease| token(*of_lease).starts_with(&lease)));
        assert!(!token(other[0]).starts_with(&lease));
    }

    #[test]
    fn foreign_values_are_unreadable() {
        let key = EventKey::new("/hook", None, "evt_1");
        let good = running(&claim(&key, 7));
        assert!(Record::read(good.as_bytes()).is_ok());
        for bad in ["", "1", "r:", "hello, world: this is somebody else's value", &good[..good.len() - 1]] {
            assert_eq!(Record::read(bad.as_bytes()), Err(Unreadable), "{bad:?}");
        }
        for at in [0, 1, 5, 24, 30, 36] {
            let mut bad = good.clone().into_bytes();
            bad[at] = b'!';
            assert_eq!(Record::read(&bad), Err(Unreadable), "at {at}");
        }
    }

    #[test]
    fn times_to_live_are_whole_milliseconds_and_never_none() {
        let cases = [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (30_000_000_000, 30_000)];
        for (nanos, expected) in cases {
            assert_eq!(milliseconds(Duration::from_nanos(nanos)), expected);
        }
        assert_eq!(milliseconds(Duration::MAX), LONGEST.as_millis() as u64);
    }
}
