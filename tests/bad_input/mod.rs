//! Everything that the receiver must refuse, in 91 numbered rows, and the few neighbours that it must accept.
//!
//! A case begins with the number of its row. Unless it says otherwise, the refusal is a 401 that does not tell which
//! check failed, the store is untouched, and the handler does not run.

mod body;
mod case;
mod http;
mod http2;
mod identity;
mod key;
mod property;
mod signature;
mod timestamp;
mod watch;

#[test]
fn every_row_has_a_case() {
    let sources = [
        include_str!("timestamp.rs"),
        include_str!("signature.rs"),
        include_str!("key.rs"),
        include_str!("body.rs"),
        include_str!("identity.rs"),
        include_str!("http.rs"),
        include_str!("http2.rs"),
    ];
    let covered = |row: &u32| sources.iter().any(|source| source.contains(&format!("\"{row}: ")));
    let rows: Vec<u32> = (0..200).filter(covered).collect();
    assert_eq!(rows, Vec::from_iter(1..=91));
}
