use std::collections::BTreeMap;

use crate::case::{Case, Verdict};
use crate::contest::Contest;
use crate::disagreements::{Disagreement, TABLE};
use crate::rng::Rng;
use crate::twists;
use crate::view::View;

/// What came of a contest.
#[derive(Default)]
pub struct Tally {
    pub accepted: usize,
    pub rejected: usize,
    /// How often an entry was the only one that explained a disagreement.
    pub explained: BTreeMap<&'static str, usize>,
    pub unexplained: Vec<String>,
}

impl Tally {
    pub fn disagreed(&self) -> usize {
        self.explained.values().sum()
    }
}

/// Judges generated deliveries; one seed gives the same ones.
pub fn compete(contest: &Contest, seed: u64) -> Tally {
    let (mut rng, mut tally, twists) = (Rng::new(seed), Tally::default(), twists::of(contest.wire));
    for _ in 0..contest.cases {
        let case = contest.case(&mut rng, &twists);
        judge(contest, &case, &(contest.oracle)(&case), &mut tally);
    }
    tally
}

/// Compares our verdict with `theirs`.
pub fn judge(contest: &Contest, case: &Case, theirs: &Verdict, tally: &mut Tally) {
    let ours = case.ours();
    if ours.accepts() == theirs.accepts() {
        match ours.accepts() {
            true => tally.accepted += 1,
            false => tally.rejected += 1,
        }
        return;
    }
    let view = View::new(case, contest.wire);
    let explaining: Vec<&Disagreement> =
        TABLE.iter().filter(|entry| entry.explains(contest.name, &view, &ours, theirs)).collect();
    match explaining[..] {
        [] => tally.unexplained.push(format!("{}: ours {ours:?}, theirs {theirs:?}\n{case:#?}", contest.name)),
        [only] => *tally.explained.entry(only.what).or_default() += 1,
        _ => *tally.explained.entry("several at once").or_default() += 1,
    }
}
