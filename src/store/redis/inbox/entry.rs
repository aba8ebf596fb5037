//! What is read of an event: an entry of the stream, and its record.

use std::collections::HashMap;

use bytes::Bytes;
use deadpool_redis::redis::{FromRedisValue, RedisError, Value, from_redis_value};

use super::super::fault::Fault;
use super::super::record::{Place, Record, State, Unreadable};
use crate::EventKey;
use crate::inbox::{EventState, KeptEvent, Order, Parcel, from_unix_millis, log};

/// An entry of the stream.
pub(super) struct Entry {
    pub(super) key: EventKey,
    pub(super) event_type: Option<Box<str>>,
    pub(super) parcel: Parcel,
}

impl Entry {
    /// Reads the names and values of an entry.
    pub(super) fn read(fields: Value) -> Result<Self, Fault> {
        let mut fields: HashMap<String, Vec<u8>> = read(fields)?;
        let mut take = |name: &str| fields.remove(name).ok_or(Unreadable);
        let order = of_text(&utf8(take("o")?)?).map(Order::of);
        let sequence = of_sequence(&utf8(take("q")?)?);
        let (head, body): (Bytes, Bytes) = (take("h")?.into(), take("b")?.into());
        let mut parcel = Parcel::new(head, body, from_unix_millis(number(&utf8(take("r")?)?)?));
        parcel.order = order.map(|order| Order { sequence, ..order });
        Ok(Self { key: key(&utf8(take("k")?)?)?, event_type: of_text(&utf8(take("t")?)?).map(Into::into), parcel })
    }
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
pub(super) fn kept_whole(entry: Value, record: &[u8], failures: Option<&[u8]>) -> Result<KeptEvent, Fault> {
    let Entry { key, event_type, parcel } = Entry::read(entry)?;
    let received = crate::inbox::unix_millis(parcel.received_at).to_string();
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
pub(super) fn sequence(sequence: i64) -> String {
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

fn utf8(bytes: Vec<u8>) -> Result<String, Unreadable> {
    String::from_utf8(bytes).map_err(|_| Unreadable)
}

fn number(text: &str) -> Result<i64, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_sort_as_text_and_come_back() {
        let numbers = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 5, 1 << 53, (1 << 53) + 1, i64::MAX];
        let texts = numbers.map(sequence);
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == 20));
        assert_eq!(texts.each_ref().map(|text| of_sequence(text)), numbers.map(Some));
        assert_eq!(of_sequence(""), None);
    }

    #[test]
    fn absent_text_is_not_an_empty_one() {
        for value in [None, Some(""), Some("invoice.paid"), Some(":")] {
            assert_eq!(of_text(&text(value)), value);
        }
    }
}
