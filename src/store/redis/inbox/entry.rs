//! An entry of the stream, as it is written and read, and what is known of an event with its record.

use bytes::{Buf, Bytes};
use deadpool_redis::redis::{FromRedisValue, RedisError, Value, from_redis_value};

use super::super::fault::Fault;
use super::super::record::{self, Place, Record, State, Unreadable};
use crate::EventKey;
use crate::inbox::{EventState, KeptEvent, Order, Parcel, from_unix_millis, log, unix_millis};
use crate::store::ClaimRequest;

/// An entry of the stream.
pub(super) struct Entry {
    pub(super) key: EventKey,
    pub(super) event_type: Option<Box<str>>,
    pub(super) parcel: Parcel,
}

/// How many texts an entry begins with: key, type, fingerprint, time, order and sequence, as the scripts read them.
const TEXTS: usize = 6;

impl Entry {
    /// Reads what [`parts`] wrote, and the body.
    pub(super) fn read(parts: Vec<u8>, body: Vec<u8>) -> Result<Self, Unreadable> {
        let mut parts = Bytes::from(parts);
        let mut texts = [const { String::new() }; TEXTS];
        for text in &mut texts {
            *text = take_text(&mut parts)?;
        }
        let [key_text, event_type, _, received, order, sequence] = texts;
        let mut parcel = Parcel::new(parts, body, from_unix_millis(number(&received)?));
        parcel.order = of_text(&order).map(|order| Order { sequence: of_sequence(&sequence), ..Order::of(order) });
        Ok(Self { key: key(&key_text)?, event_type: of_text(&event_type).map(Into::into), parcel })
    }
}

/// All of an entry but its body: the texts, each behind its length, and the head.
pub(super) fn parts(claim: &ClaimRequest<'_>, parcel: &Parcel) -> Vec<u8> {
    let order = parcel.order.as_ref();
    let texts: [&str; TEXTS] = [
        claim.key.as_str(),
        &text(claim.event_type),
        &record::fingerprint(claim.fingerprint),
        &unix_millis(parcel.received_at).to_string(),
        &text(order.map(|order| &*order.key)),
        &order.and_then(|order| order.sequence).map_or_else(String::new, sequence),
    ];
    let length = texts.iter().map(|text| size_of::<u32>() + text.len()).sum::<usize>() + parcel.head.len();
    let mut parts = Vec::with_capacity(length);
    for text in texts {
        parts.extend((text.len() as u32).to_be_bytes());
        parts.extend(text.as_bytes());
    }
    parts.extend(&parcel.head);
    parts
}

fn take_text(parts: &mut Bytes) -> Result<String, Unreadable> {
    let length = parts.try_get_u32().map_err(|_| Unreadable)? as usize;
    if length > parts.len() {
        return Err(Unreadable);
    }
    String::from_utf8(parts.split_to(length).into()).map_err(|_| Unreadable)
}

/// What is known of an event without its parcel.
pub(super) fn kept(key_text: &str, event_type: &str, received: &str, record: &[u8]) -> Result<KeptEvent, Fault> {
    let (found, place) = (Record::read(record)?, Place::read(record).ok_or(Unreadable)?);
    let mut event = KeptEvent::new(key(key_text)?, place.arrival, from_unix_millis(number(received)?));
    event.event_type = of_text(event_type).map(Into::into);
    event.attempts = place.attempts;
    let time = Some(from_unix_millis(place.time));
    event.state = match found.state {
        State::Completed => EventState::Completed,
        State::Failed => EventState::Dead,
        State::Accepted if place.rest.starts_with('w') => EventState::Waiting,
        State::Accepted | State::Running => EventState::Running,
    };
    match event.state {
        EventState::Waiting => event.due_at = time,
        EventState::Running => {}
        EventState::Completed | EventState::Dead => {
            (event.processed_at, event.summary) = (time, Some(place.rest.into()));
        }
    }
    Ok(event)
}

/// What is known of an event, all of it.
pub(super) fn kept_whole(entry: Entry, record: &[u8], failures: Option<&[u8]>) -> Result<KeptEvent, Fault> {
    let Entry { key, event_type, parcel } = entry;
    let received = unix_millis(parcel.received_at).to_string();
    let mut event = kept(key.as_str(), &text(event_type.as_deref()), &received, record)?;
    event.failures = failures.map(|log| log::read(&String::from_utf8_lossy(log))).unwrap_or_default();
    event.parcel = Some(parcel);
    Ok(event)
}

/// A text that may be absent, so that it can be told from an empty one.
pub(super) fn text(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(":{text}"))
}

/// A sequence as twenty digits, which sort as the numbers do: in Lua a number has 53 bits.
fn sequence(sequence: i64) -> String {
    format!("{:020}", sequence.wrapping_sub(i64::MIN).cast_unsigned())
}

pub(super) fn read<T: FromRedisValue>(value: Value) -> Result<T, Fault> {
    from_redis_value(value).map_err(|error| RedisError::from(error).into())
}

fn of_sequence(text: &str) -> Option<i64> {
    text.parse::<u64>().ok().map(|number| number.cast_signed().wrapping_add(i64::MIN))
}

fn of_text(text: &str) -> Option<&str> {
    text.strip_prefix(':')
}

fn key(text: &str) -> Result<EventKey, Unreadable> {
    EventKey::parse(text).ok_or(Unreadable)
}

fn number(text: &str) -> Result<i64, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::ClaimToken;

    #[test]
    fn sequences_sort_as_text_and_come_back() {
        let numbers = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 5, 1 << 53, (1 << 53) + 1, i64::MAX];
        let texts = numbers.map(sequence);
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == 20));
        assert_eq!(texts.each_ref().map(|text| of_sequence(text)), numbers.map(Some));
        assert_eq!(of_sequence(""), None);
    }

    #[test]
    fn entries_come_back_as_written_and_nothing_less() {
        let key = EventKey::new("/hook", Some("ténant"), "evt_1");
        let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::ZERO).event_type(Some("invoice.paid"));
        let plain = Parcel::new("a head", vec![0, 255, b'\n'], from_unix_millis(1_700_000_000_123));
        let ordered = plain.clone().ordered(Order { sequence: Some(-3), ..Order::of("sub_1") });
        for parcel in [plain, ordered] {
            let parts = parts(&claim, &parcel);
            let entry = Entry::read(parts.clone(), parcel.body.to_vec()).expect("an entry");
            assert_eq!((&entry.key, entry.event_type.as_deref()), (&key, Some("invoice.paid")));
            assert_eq!(entry.parcel, parcel);
            for length in 0..parts.len() - "a head".len() {
                assert!(Entry::read(parts[..length].to_vec(), Vec::new()).is_err(), "{length} bytes of it");
            }
        }
    }

    #[test]
    fn absent_text_is_not_an_empty_one() {
        for value in [None, Some(""), Some("invoice.paid"), Some(":")] {
            assert_eq!(of_text(&text(value)), value);
        }
    }
}
