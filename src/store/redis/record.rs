//! What is written under a key.
//!
//! `state:token:fingerprint:text`, in ASCII up to the text: `r` for a running claim with the event's type, `c` for a
//! completed and `f` for a failed one with its summary, `a` for an event that an inbox has accepted and that is still to be run.
//! Token and fingerprint are base64, since a value of up to 44 bytes costs Redis one allocation instead of two.
//!
//! The text of an inbox's events begins with `@arrival attempts time `, see [`Place`].

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::{ClaimRequest, ClaimToken, Completion, Fingerprint};

/// Where the token ends, its colon included: what a script compares.
const HOLDER: usize = 2 + 22 + 1;
const HEAD: usize = HOLDER + 11 + 1;

/// What no lease and no retention comes near, and what Redis can still add to its clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What was found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
}

/// What has become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A receiver runs it.
    Running,
    /// An inbox has it: it waits, or a worker runs it.
    Accepted,
    Completed,
    Failed,
}

/// What the record of an inbox's event says beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) arrival: u64,
    pub(super) attempts: u32,
    /// When it is due, was leased, or ended, in milliseconds since 1970.
    pub(super) time: i64,
    /// Of an accepted event `w` while it waits and `r` while it runs, also when its lease has lapsed; behind that `o` if it is in an
    /// order and `s` if its handler was started, and of one that runs, since when it was due before. Of others, the summary.
    pub(super) rest: &'a str,
}

impl<'a> Place<'a> {
    /// `None`, if the event is none of an inbox.
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
}

/// A value under one of this store's keys that it did not write.
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
                b'a' => State::Accepted,
                b'c' => State::Completed,
                b'f' => State::Failed,
                _ => return Err(Unreadable),
            },
            token: read_token(token)?,
            fingerprint: read_fingerprint(fingerprint)?,
        })
    }
}

/// What a worker's tokens begin with.
const LEASED: [u8; 2] = [0x1e, 0xa5];

/// How many bytes the tokens of one lease share: a multiple of three, so that their texts share a whole number of characters.
const SHARED: usize = 12;

/// Tokens for the events of one lease. The store knows by a token's first two bytes that it holds an event of the inbox, and need not
/// ask what kind of claim it holds. The next ten are random and tell the lease, the last four the event.
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

/// What the texts of all tokens of a lease begin with.
pub(super) fn lease_of(token: ClaimToken) -> String {
    URL_SAFE_NO_PAD.encode(&token.as_bytes()[..SHARED])
}

/// Whether a token is probably one of [`leased_tokens`]: one of 65,536 others is taken for one, too.
pub(super) fn is_leased(token: ClaimToken) -> bool {
    token.as_bytes().starts_with(&LEASED)
}

/// A token as it is in a record.
pub(super) fn token(token: ClaimToken) -> String {
    URL_SAFE_NO_PAD.encode(token.as_bytes())
}

pub(super) fn read_token(text: &[u8]) -> Result<ClaimToken, Unreadable> {
    Ok(ClaimToken::from_bytes(decode(text)?))
}

/// A fingerprint as it is in a record.
pub(super) fn fingerprint(fingerprint: Fingerprint) -> String {
    URL_SAFE_NO_PAD.encode(fingerprint.as_u64().to_be_bytes())
}

pub(super) fn read_fingerprint(text: &[u8]) -> Result<Fingerprint, Unreadable> {
    Ok(Fingerprint::from_u64(u64::from_be_bytes(decode(text)?)))
}

/// What an accepted event is written as, up to its [`Place`], which the script knows.
pub(super) fn accepted(claim: &ClaimRequest<'_>) -> String {
    write('a', claim, "")
}

/// What a claim is written as while it runs.
pub(super) fn running(claim: &ClaimRequest<'_>) -> String {
    write('r', claim, claim.event_type.unwrap_or_default())
}

/// What it is written as once it is settled.
pub(super) fn settled(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> String {
    write(if completion.failed { 'f' } else { 'c' }, claim, completion.summary)
}

/// What a running claim under this token begins with, whatever its body.
pub(super) fn holder(token: ClaimToken) -> String {
    let mut text = String::with_capacity(HOLDER);
    text.push_str("r:");
    URL_SAFE_NO_PAD.encode_string(token.as_bytes(), &mut text);
    text.push(':');
    text
}

/// A time to live as Redis takes it: whole milliseconds, at least one.
pub(super) fn milliseconds(time: Duration) -> u64 {
    let time = time.min(LONGEST);
    time.as_nanos().div_ceil(1_000_000).max(1) as u64
}

fn write(state: char, claim: &ClaimRequest<'_>, text: &str) -> String {
    let mut value = String::with_capacity(HEAD + text.len());
    value.push(state);
    value.push(':');
    URL_SAFE_NO_PAD.encode_string(claim.token.as_bytes(), &mut value);
    value.push(':');
    URL_SAFE_NO_PAD.encode_string(claim.fingerprint.as_u64().to_be_bytes(), &mut value);
    value.push(':');
    value.push_str(text);
    value
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
            assert_eq!(Record::read(accepted(&claim).as_bytes()), Ok(Record { state: State::Accepted, ..expected }));
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
    fn place_of_an_inboxs_event_is_told_from_a_summary() {
        let key = EventKey::new("/hook", None, "evt_1");
        let claim = claim(&key, 7);
        let value = accepted(&claim) + "@1700000000000000012 3 1700000000500 two words";
        let place =
            Place { arrival: 1_700_000_000_000_000_012, attempts: 3, time: 1_700_000_000_500, rest: "two words" };
        assert_eq!(Place::read(value.as_bytes()), Some(place));
        for completion in
            [Completion::succeeded("200 OK", LONGEST), Completion::failed("@ nine o'clock, or so", LONGEST)]
        {
            assert_eq!(Place::read(settled(&claim, &completion).as_bytes()), None);
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
