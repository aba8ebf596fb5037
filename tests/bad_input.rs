//! Everything that the receiver must refuse, in 91 numbered rows, and the few neighbours that it must accept.
//!
//! A case begins with the number of its row. Unless it says otherwise, the refusal is a 401 that does not tell which
//! check failed, the store is untouched, and the handler does not run.

mod support;

#[path = "bad_input/body.rs"]
mod body;
#[path = "bad_input/case.rs"]
mod case;
#[path = "bad_input/http.rs"]
mod http;
#[path = "bad_input/http2.rs"]
mod http2;
#[path = "bad_input/identity.rs"]
mod identity;
#[path = "bad_input/key.rs"]
mod key;
#[path = "bad_input/property.rs"]
mod property;
#[path = "bad_input/signature.rs"]
mod signature;
#[path = "bad_input/timestamp.rs"]
mod timestamp;
#[path = "bad_input/watch.rs"]
mod watch;

#[test]
fn every_row_has_a_case() {
    let sources = [
        include_str!("bad_input/timestamp.rs"),
        include_str!("bad_input/signature.rs"),
        include_str!("bad_input/key.rs"),
        include_str!("bad_input/body.rs"),
        include_str!("bad_input/identity.rs"),
        include_str!("bad_input/http.rs"),
        include_str!("bad_input/http2.rs"),
    ];
    let covered = |row: &u32| sources.iter().any(|source| source.contains(&format!("\"{row}: ")));
    let rows: Vec<u32> = (0..200).filter(covered).collect();
    assert_eq!(rows, Vec::from_iter(1..=91));
}
