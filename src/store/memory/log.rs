//! The completed records of a shard, oldest first, and the coarse time in them.

use std::collections::VecDeque;
use std::time::Duration;

use super::hash::KeyHash;
use crate::store::ClaimToken;

/// Records per segment: 4 KiB.
pub(super) const SEGMENT: usize = 128;

/// A queue of records, each at a position that stays its own.
///
/// The log grows and shrinks by segments of one size, where a doubling vector would hold up to twice the memory that it
/// needs. Positions count up and wrap around at `u32::MAX`, so only their distance means something.
#[derive(Debug, Default)]
pub(super) struct Log {
    segments: VecDeque<Vec<Record>>,
    /// The position of the first segment's first slot.
    base: u32,
    /// The number of records of the first segment that are gone.
    gone: usize,
    /// The segment that was emptied last, to be filled next.
    spare: Option<Vec<Record>>,
}

impl Log {
    /// The number of records, the forgotten ones included.
    pub(super) fn len(&self) -> usize {
        let full = self.segments.len().saturating_sub(1) * SEGMENT;
        full + self.segments.back().map_or(0, Vec::len) - self.gone
    }

    /// The position of the oldest record, or of the next one if the log is empty.
    pub(super) fn head(&self) -> u32 {
        self.base.wrapping_add(self.gone as u32)
    }

    pub(super) fn push(&mut self, record: Record) -> u32 {
        let position = self.head().wrapping_add(self.len() as u32);
        if let Some(last) = self.segments.back_mut()
            && last.len() < SEGMENT
        {
            last.push(record);
        } else {
            let mut segment = self.spare.take().unwrap_or_else(|| Vec::with_capacity(SEGMENT));
            segment.push(record);
            self.segments.push_back(segment);
        }
        position
    }

    pub(super) fn first(&self) -> Option<&Record> {
        self.segments.front()?.get(self.gone)
    }

    pub(super) fn pop(&mut self) -> Option<Record> {
        let record = *self.first()?;
        self.gone += 1;
        if self.gone == SEGMENT {
            self.drop_first_segment();
        }
        Some(record)
    }

    pub(super) fn get(&self, position: u32) -> &Record {
        let (segment, slot) = self.place(position);
        &self.segments[segment][slot]
    }

    pub(super) fn get_mut(&mut self, position: u32) -> &mut Record {
        let (segment, slot) = self.place(position);
        &mut self.segments[segment][slot]
    }

    /// Every record with its position, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record)> {
        let records = self.segments.iter().flatten().skip(self.gone);
        records.enumerate().map(|(offset, record)| (self.head().wrapping_add(offset as u32), record))
    }

    fn place(&self, position: u32) -> (usize, usize) {
        let offset = position.wrapping_sub(self.base) as usize;
        (offset / SEGMENT, offset % SEGMENT)
    }

    fn drop_first_segment(&mut self) {
        self.base = self.base.wrapping_add(SEGMENT as u32);
        self.gone = 0;
        self.spare = self.segments.pop_front().map(|mut segment| {
            segment.clear();
            segment
        });
    }
}

/// A completed event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: KeyHash,
    /// When the event is forgotten; [`Ticks::ZERO`] once it is.
    expires: Ticks,
    /// When the event was completed, rounded up: a record is never taken for older than it is.
    completed: Ticks,
    pub(super) fingerprint: u32,
    pub(super) tag: u32,
}

const _: () = assert!(size_of::<Record>() == 32);

impl Record {
    pub(super) fn new(key: KeyHash, fingerprint: u32, token: ClaimToken, now: Duration, retention: Duration) -> Self {
        Self {
            key,
            // Never zero, which would read as forgotten.
            expires: Ticks::ceil(now.saturating_add(retention)).max(Ticks::ONE),
            completed: Ticks::ceil(now),
            fingerprint,
            tag: tag(token),
        }
    }

    pub(super) fn expires(&self) -> Ticks {
        self.expires
    }

    pub(super) fn has_expired(&self, now: Ticks) -> bool {
        self.expires <= now
    }

    /// Whether it is at least as old as `age`.
    pub(super) fn has_reached(&self, age: Ticks, now: Ticks) -> bool {
        age == Ticks::ZERO || self.completed.plus(age) <= now
    }

    /// Turns the record into a hole in the log.
    pub(super) fn forget(&mut self) {
        self.expires = Ticks::ZERO;
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.expires == Ticks::ZERO
    }
}

/// Shortens a token to 32 bits, enough to tell the token that completed this very record from any other.
///
/// Every byte counts, since tokens made elsewhere may differ only in a few.
pub(super) fn tag(token: ClaimToken) -> u32 {
    const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (u128::from_be_bytes(*token.as_bytes()).wrapping_mul(MULTIPLIER) >> 96) as u32
}

/// Coarse time, four bytes wide: tenths of a second since the store was built; the last one, 13 years on, stands for
/// everything after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticks(u32);

const TICK_NANOS: u32 = 100_000_000;
const TICKS_PER_SECOND: u64 = 10;

impl Ticks {
    pub(super) const ZERO: Self = Self(0);
    pub(super) const MAX: Self = Self(u32::MAX);
    pub(super) const ONE: Self = Self(1);

    /// The last tick not after `time`.
    pub(super) fn floor(time: Duration) -> Self {
        Self::saturating(whole_ticks(time))
    }

    /// The first tick not before `time`.
    pub(super) fn ceil(time: Duration) -> Self {
        let begun = u64::from(!time.subsec_nanos().is_multiple_of(TICK_NANOS));
        Self::saturating(whole_ticks(time).saturating_add(begun))
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn saturating(ticks: u64) -> Self {
        u32::try_from(ticks).map_or(Self::MAX, Self)
    }
}

fn whole_ticks(time: Duration) -> u64 {
    time.as_secs().saturating_mul(TICKS_PER_SECOND).saturating_add(u64::from(time.subsec_nanos() / TICK_NANOS))
}

#[cfg(test)]
impl Log {
    pub(super) fn starting_at(base: u32) -> Self {
        Self { base, ..Self::default() }
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;

    fn numbered(fingerprint: u32) -> Record {
        let key = KeyHasher::new().hash(&EventKey::new("", None, ""));
        Record::new(key, fingerprint, ClaimToken::random(), Duration::ZERO, Duration::MAX)
    }

    fn numbers(log: &Log) -> Vec<u32> {
        log.iter().map(|(_, record)| record.fingerprint).collect()
    }

    #[test]
    fn records_leave_in_the_order_they_came() {
        let mut log = Log::default();
        for number in 0..1_000 {
            log.push(numbered(number));
        }
        for number in 0..1_000 {
            assert_eq!(log.len(), 1_000 - number as usize);
            assert_eq!(log.pop().map(|record| record.fingerprint), Some(number));
        }
        assert!(log.pop().is_none());
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn positions_survive_the_wrap_around() {
        let mut log = Log::starting_at(u32::MAX - 200);
        let positions: Vec<u32> = (0..500).map(|number| log.push(numbered(number))).collect();
        assert_eq!((positions[0], positions[499]), (u32::MAX - 200, 298));

        for _ in 0..300 {
            log.pop();
        }
        assert_eq!(log.head(), positions[300]);
        assert!((300..).zip(&positions[300..]).all(|(number, &at)| log.get(at).fingerprint == number));
        assert_eq!(numbers(&log), (300..500).collect::<Vec<_>>());
        assert!(log.iter().map(|(position, _)| position).eq(positions[300..].iter().copied()));
    }

    #[test]
    fn emptied_segments_are_used_again() {
        let mut log = Log::default();
        for number in 0..100_000 {
            log.push(numbered(number));
            if number >= 50 {
                log.pop();
            }
        }
        assert_eq!(log.len(), 50);
        assert!(log.segments() <= 2, "{} segments for 50 records", log.segments());
    }

    #[test]
    fn rounds_towards_the_requested_side() {
        let time = Duration::from_millis(1_250);
        assert_eq!((Ticks::floor(time), Ticks::ceil(time)), (Ticks(12), Ticks(13)));
        let exact = Duration::from_millis(1_200);
        assert_eq!((Ticks::floor(exact), Ticks::ceil(exact)), (Ticks(12), Ticks(12)));
        assert_eq!(Ticks::ceil(Duration::from_nanos(1)), Ticks::ONE);
    }

    #[test]
    fn the_end_of_time_saturates() {
        assert_eq!(Ticks::floor(Duration::MAX), Ticks::MAX);
        assert_eq!(Ticks::ceil(Duration::MAX), Ticks::MAX);
        assert_eq!(Ticks::MAX.plus(Ticks::ONE), Ticks::MAX);
    }
}
