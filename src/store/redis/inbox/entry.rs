//! What is kept of an event, as it is written and read: an entry of the stream, and the parcel.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use deadpool_redis::redis::{FromRedisValue, RedisError, Value, from_redis_value};

use super::super::fault::Fault;
use super::super::record::{self, Place, Record, State, Unreadable};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::ClaimRequest;
use crate::store::queue::{EventState, Order, QueuedEvent, StoredRequest};

/// How entries are written. Every version begins with the version, the key, the order and the name of the parcel.
const VERSION: &str = "1";

/// How many texts an entry has: those, and the type, the fingerprint, the time, the sequence, and how long the parcel is.
const TEXTS: usize = 9;

/// An entry of the stream.
pub(super) struct Entry {
    pub(super) key: EventKey,
    pub(super) event_type: Option<Box<str>>,
    pub(super) parcel_name: String,
    pub(super) parcel_length: usize,
    received: i64,
    order: Option<Order>,
}

impl Entry {
    /// Reads what [`facts`] wrote.
    pub(super) fn read(facts: &[u8]) -> Result<Self, Unreadable> {
        let [version, key_text, order, parcel_name, event_type, _, received, sequence, length] = texts(facts)?;
        if version != VERSION {
            return Err(Unreadable);
        }
        Ok(Self {
            key: key(&key_text)?,
            event_type: of_text(&event_type).map(Into::into),
            parcel_name,
            parcel_length: length.parse().map_err(|_| Unreadable)?,
            received: number(&received)?,
            order: of_text(&order).map(|order| Order { sequence: of_sequence(&sequence), ..Order::of(order) }),
        })
    }

    /// A parcel in which head and body are still missing.
    pub(super) fn no_parcel(&self) -> StoredRequest {
        StoredRequest::new(Bytes::new(), Bytes::new(), from_unix_millis(self.received))
    }

    /// The parcel of this entry, from what [`write_parcel`] wrote.
    pub(super) fn parcel(&self, value: Vec<u8>) -> Result<StoredRequest, Unreadable> {
        let mut value = Bytes::from(value);
        let head = take(&mut value)?;
        let parcel = StoredRequest::new(head, value, from_unix_millis(self.received));
        Ok(StoredRequest { order: self.order.clone(), ..parcel })
    }
}

/// All of an event that its entry says.
pub(super) fn facts(claim: &ClaimRequest<'_>, parcel: &StoredRequest, parcel_length: usize) -> Vec<u8> {
    let order = parcel.order.as_ref();
    let texts: [&str; TEXTS] = [
        VERSION,
        claim.key.as_str(),
        &text(order.map(|order| &*order.key)),
        &record::token(claim.token),
        &text(claim.event_type),
        &record::fingerprint(claim.fingerprint),
        &unix_millis(parcel.received_at).to_string(),
        &order.and_then(|order| order.sequence).map_or_else(String::new, sequence),
        &parcel_length.to_string(),
    ];
    let mut facts = Vec::with_capacity(texts.iter().map(|text| size_of::<u32>() + text.len()).sum());
    for text in texts {
        facts.put_u32(text.len() as u32);
        facts.put_slice(text.as_bytes());
    }
    facts
}

/// Head and body, in one value.
pub(super) fn write_parcel(parcel: &StoredRequest) -> Bytes {
    let mut value = BytesMut::with_capacity(size_of::<u32>() + parcel.head.len() + parcel.body.len());
    value.put_u32(parcel.head.len() as u32);
    value.put_slice(&parcel.head);
    value.put_slice(&parcel.body);
    value.freeze()
}

/// The key that an entry of any version names, as text.
pub(super) fn key_text(facts: &[u8]) -> Result<String, Unreadable> {
    let [_, key] = texts(facts)?;
    Ok(key)
}

/// What is known of an event without its parcel.
pub(super) fn kept(key_text: &str, event_type: &str, received: &str, record: &[u8]) -> Result<QueuedEvent, Fault> {
    let (found, place) = (Record::read(record)?, Place::read(record).ok_or(Unreadable)?);
    let mut event = QueuedEvent::new(key(key_text)?, place.arrival, from_unix_millis(number(received)?));
    event.event_type = of_text(event_type).map(Into::into);
    event.attempts = place.attempts;
    let time = Some(from_unix_millis(place.time));
    event.state = match found.state {
        State::Completed => EventState::Completed,
        State::Failed => EventState::Dead,
        State::Accepted if is_waiting(record) => EventState::Waiting,
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

/// Whether the record of an inbox's event says that it waits.
pub(super) fn is_waiting(record: &[u8]) -> bool {
    Place::read(record).is_some_and(|place| place.rest.starts_with('w'))
}

/// A text that may be absent, so that it can be told from an empty one.
pub(super) fn text(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(":{text}"))
}

pub(super) fn read<T: FromRedisValue>(value: Value) -> Result<T, Fault> {
    from_redis_value(value).map_err(|error| RedisError::from(error).into())
}

/// The first texts of an entry.
fn texts<const N: usize>(facts: &[u8]) -> Result<[String; N], Unreadable> {
    let mut facts = Bytes::copy_from_slice(facts);
    let mut texts = [const { String::new() }; N];
    for text in &mut texts {
        *text = String::from_utf8(take(&mut facts)?.into()).map_err(|_| Unreadable)?;
    }
    Ok(texts)
}

/// What is behind its own length.
fn take(bytes: &mut Bytes) -> Result<Bytes, Unreadable> {
    let length = bytes.try_get_u32().map_err(|_| Unreadable)? as usize;
    if length > bytes.len() {
        return Err(Unreadable);
    }
    Ok(bytes.split_to(length))
}

/// A sequence as twenty digits, which sort as the numbers do: in Lua a number has 53 bits.
fn sequence(sequence: i64) -> String {
    format!("{:020}", sequence.wrapping_sub(i64::MIN).cast_unsigned())
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
    fn entries_and_parcels_come_back_as_written_and_nothing_less() {
        let key = EventKey::new("/hook", Some("ténant"), "evt_1");
        let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::ZERO).event_type(Some("invoice.paid"));
        let plain = StoredRequest::new("a head", vec![0, 255, b'\n'], from_unix_millis(1_700_000_000_123));
        let ordered = plain.clone().ordered(Order { sequence: Some(-3), ..Order::of("sub_1") });
        for parcel in [plain, ordered] {
            let value = write_parcel(&parcel);
            let facts = facts(&claim, &parcel, value.len());
            let entry = Entry::read(&facts).expect("an entry");
            assert_eq!((&entry.key, entry.event_type.as_deref()), (&key, Some("invoice.paid")));
            assert_eq!((entry.parcel_name.as_str(), entry.parcel_length), (&*record::token(claim.token), 13));
            assert_eq!(entry.parcel(value.to_vec()), Ok(parcel));
            assert_eq!(key_text(&facts).as_deref(), Ok(key.as_str()));
            for length in 0..facts.len() {
                assert!(Entry::read(&facts[..length]).is_err(), "{length} bytes of it");
            }
            for length in 0..4 + "a head".len() {
                assert!(entry.parcel(value[..length].to_vec()).is_err(), "{length} bytes of the parcel");
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
