//! Over generated deliveries, we and the oracles give the same verdict.

use std::thread;

use tower_webhook_differential::contest::ALL;
use tower_webhook_differential::disagreements::TABLE;
use tower_webhook_differential::judge::{Tally, compete};

const SEED: u64 = 2026;

#[test]
fn verdicts_differ_where_the_table_says_so_and_nowhere_else() {
    let tallies: Vec<(&str, Tally)> = thread::scope(|scope| {
        let contests: Vec<_> =
            ALL.iter().map(|contest| (contest.name, scope.spawn(|| compete(contest, SEED)))).collect();
        contests.into_iter().map(|(name, contest)| (name, contest.join().expect("a tally"))).collect()
    });
    for (name, tally) in &tallies {
        print(name, tally);
        assert!(tally.accepted * 5 > tally.rejected, "{name}: too few deliveries were right");
        let some: Vec<&String> = tally.unexplained.iter().take(3).collect();
        assert!(some.is_empty(), "no entry explains {}, such as {some:#?}", tally.unexplained.len());
        every_entry_occurs(name, tally);
    }
}

fn every_entry_occurs(contest: &str, tally: &Tally) {
    for entry in TABLE.iter().filter(|entry| entry.contests.contains(&contest)) {
        assert!(tally.explained.contains_key(entry.what), "with {contest} this never occurred: {}", entry.what);
    }
}

/// The names in the table are those of contests: a misspelled one would never be looked for.
#[test]
fn entries_are_of_contests_and_distinct() {
    for (at, entry) in TABLE.iter().enumerate() {
        let known = |contest: &&str| ALL.iter().any(|known| known.name == *contest);
        assert!(!entry.contests.is_empty() && entry.contests.iter().all(known), "{}", entry.what);
        assert!(!entry.why.is_empty() && TABLE[..at].iter().all(|other| other.what != entry.what), "{}", entry.what);
    }
}

fn print(name: &str, tally: &Tally) {
    println!("{name}: accepted {}, rejected {}, differed {}", tally.accepted, tally.rejected, tally.disagreed());
    for (what, times) in &tally.explained {
        let right = TABLE.iter().find(|entry| entry.what == *what).map(|entry| entry.right);
        println!("    {times:4} {what} ({right:?})");
    }
}
