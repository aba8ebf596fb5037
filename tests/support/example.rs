//! Where `cargo test` puts the examples.

use std::path::PathBuf;

/// They are built beside the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "the example {name} is not built: run `cargo build --example {name}` first");
    path
}
