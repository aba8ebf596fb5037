//! The project's own vectors, judged by the oracles.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tower_webhook_differential::case::{Case, Verdict};
use tower_webhook_differential::contest::{ALL, Contest};
use tower_webhook_differential::draft::URL;
use tower_webhook_differential::judge::{Tally, judge};
use tower_webhook_differential::oracles;

#[derive(Deserialize)]
struct Vector {
    provider: String,
    name: String,
    secret: String,
    headers: BTreeMap<String, String>,
    #[serde(default)]
    extra_headers: Vec<(String, String)>,
    body: String,
    now: Option<u64>,
    tolerance: Option<u64>,
    url: Option<String>,
}

impl Vector {
    fn case(&self, contest: &Contest) -> Case {
        let pairs = self.headers.iter().chain(self.extra_headers.iter().map(|(name, value)| (name, value)));
        let headers: HeaderMap = pairs
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
                (name.parse::<HeaderName>().expect("a name"), value)
            })
            .collect();
        Case {
            provider: contest.wire.provider,
            secrets: vec![self.secret.clone()],
            headers,
            body: self.body.clone().into_bytes(),
            url: self.url.clone().unwrap_or(URL.to_owned()),
            now: self.now.unwrap_or_default(),
            tolerance: self.tolerance,
            story: vec!["a vector"],
        }
    }
}

/// The oracle's verdict on a delivery of another day. One that cannot be told the time or the tolerance is asked what it can
/// be asked, and our side is set up alike.
fn theirs(contest: &Contest, case: &mut Case) -> Verdict {
    match contest.name {
        "standardwebhooks" => {
            case.tolerance = None;
            oracles::standardwebhooks_at_any_time(case)
        }
        "svix" => {
            case.tolerance = None;
            (contest.oracle)(case)
        }
        "async-stripe" => {
            case.tolerance = Some(300);
            (contest.oracle)(case)
        }
        _ => (contest.oracle)(case),
    }
}

#[test]
fn the_oracles_give_our_verdict_on_every_vector() {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../tests/data/vectors.json")).expect("an array of deliveries");
    for contest in ALL {
        let mut tally = Tally::default();
        // What sends with svix, and is not called so.
        let aliases = [("clerk", "svix"), ("meta", "github")];
        let provider = |vector: &Vector| {
            aliases
                .iter()
                .find(|(alias, _)| *alias == vector.provider)
                .map_or(vector.provider.clone(), |(_, to)| (*to).to_owned())
        };
        let own: Vec<&Vector> = vectors.iter().filter(|vector| provider(vector) == contest.wire.provider).collect();
        assert!(!own.is_empty(), "{} has no vector", contest.name);
        for vector in &own {
            let mut case = vector.case(contest);
            let theirs = theirs(contest, &mut case);
            judge(contest, &case, &theirs, &mut tally);
            assert!(tally.unexplained.is_empty(), "{}: {:#?}", vector.name, tally.unexplained);
        }
        println!("{:34} {:3} vectors, {:2} differ: {:?}", contest.name, own.len(), tally.disagreed(), tally.explained);
    }
}
