//! What is written under a key.
//!
//! `state:token:fingerprint:text`, in ASCII up to the text: `r` for a running claim with the event's type, `c` for a
//! completed and `f` for a failed one with its summary. Token and fingerprint are base64, since a value of up to 44 bytes
//! costs Redis one allocation instead of two.

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
    pub(super) is_running: bool,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
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
            is_running: match state {
                b'r' => true,
                b'c' | b'f' => false,
                _ => return Err(Unreadable),
            },
            token: ClaimToken::from_bytes(decode(token)?),
            fingerprint: Fingerprint::from_u64(u64::from_be_bytes(decode(fingerprint)?)),
        })
    }
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
            let expected = Record { is_running: true, token: claim.token, fingerprint: claim.fingerprint };
            assert_eq!(Record::read(running(&claim).as_bytes()), Ok(expected));
            for completion in [Completion::succeeded("OK", LONGEST), Completion::failed("é:☃", LONGEST)] {
                let read = Record::read(settled(&claim, &completion).as_bytes());
                assert_eq!(read, Ok(Record { is_running: false, ..expected }));
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
