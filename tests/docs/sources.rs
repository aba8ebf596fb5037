//! The documents in `docs` name what is in the source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FAULTS: &str = include_str!("../../docs/faults.md");
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");
const STATES: &str = include_str!("../../docs/states.md");

/// A test, as its file and its name.
type Named = (String, String);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below this folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, "rs")
}

/// All files below this folder whose names end so.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(self::files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            files.push(path);
        }
    }
    files
}

/// The number of `row_NN_…`.
fn row(name: &str) -> u32 {
    let number = name.strip_prefix("row_").and_then(|rest| rest.split('_').next()).expect("row_NN_…");
    number.parse().expect("a number")
}

/// The tests of the fault table in the source.
fn written() -> BTreeSet<Named> {
    let mut tests = BTreeSet::new();
    for file in sources(&root().join("tests")) {
        let text = std::fs::read_to_string(&file).expect("text");
        let path = file.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        for line in text.lines() {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap_or_default();
            if name.starts_with("row_") && name.as_bytes().get(4).is_some_and(u8::is_ascii_digit) {
                tests.insert((path.clone(), name.to_owned()));
            }
        }
    }
    tests
}

/// The tests that the document lists, by the row that they stand under.
fn listed() -> Vec<(u32, Named)> {
    let (_, section) = FAULTS.split_once("\n## The tests of each row\n").expect("the heading");
    let (mut current, mut tests) = (0, Vec::new());
    for line in section.lines() {
        if let Some(number) = line.strip_prefix("- ").and_then(|line| line.strip_suffix(':')) {
            current = number.parse().expect("a row's number");
        } else if let Some(test) = line.strip_prefix("  - ") {
            let (path, name) = test.split_once(' ').expect("a file and a name");
            tests.push((current, (path.trim_matches('`').to_owned(), name.trim_matches('`').to_owned())));
        }
    }
    tests
}

#[test]
fn every_fault_has_a_test_and_every_test_of_a_fault_is_listed() {
    let rows = FAULTS.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse::<u32>().ok());
    assert_eq!(rows.collect::<Vec<_>>(), (1..=50).collect::<Vec<_>>());
    let listed = listed();
    for (number, (path, name)) in &listed {
        assert_eq!(row(name), *number, "{path} {name}");
    }
    assert_eq!(listed.iter().map(|(number, _)| *number).collect::<BTreeSet<_>>(), (1..=50).collect());
    assert_eq!(listed.into_iter().map(|(_, test)| test).collect::<BTreeSet<_>>(), written());
}

/// The text between each pair of backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_item_that_the_architecture_names_exists() {
    let mut named = 0;
    for item in quoted(ARCHITECTURE).filter(|item| item.contains(".rs::")) {
        let (path, name) = item.split_once("::").expect("a file and an item");
        let source =
            std::fs::read_to_string(root().join("src").join(path)).unwrap_or_else(|_| panic!("{item}: no such file"));
        let is_defined = ["fn", "struct", "enum", "trait"].iter().any(|kind| {
            source.match_indices(&format!("{kind} {name}")).any(|(at, found)| {
                let next = source[at + found.len()..].chars().next();
                next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
            })
        });
        assert!(is_defined, "{item}: the file does not define it");
        named += 1;
    }
    assert!(named > 20, "{named}");
    for room in quoted(ARCHITECTURE).filter(|room| room.ends_with('/')) {
        assert!(root().join("src").join(room).is_dir(), "{room}: no such folder");
    }
}

/// The part of the page of states below this heading.
fn states(heading: &str) -> &'static str {
    let (_, rest) = STATES.split_once(&format!("\n### {heading}\n")).expect("the heading");
    rest.split("\n#").next().expect("a section")
}

/// The names in the first cells of the rows, without colons.
fn first_names(section: &str) -> BTreeSet<&str> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| quoted(row.split('|').nth(1).expect("a cell"))).map(|name| name.trim_matches(':')).collect()
}

#[test]
fn every_key_of_an_inbox_in_redis_is_on_the_page_of_states() {
    let scripts = files(&root().join("src/store/redis"), "lua");
    let text: String = scripts.iter().map(|file| std::fs::read_to_string(file).expect("a script")).collect();
    let keys = text.split("PREFIX .. '").skip(1).map(|rest| rest.split('\'').next().expect("a key").trim_matches(':'));
    let mut named = first_names(states("Redis, queued"));
    named.extend(quoted(states("Redis, queued")).filter(|name| *name == "unsettled"));
    assert_eq!(keys.collect::<BTreeSet<_>>(), named);
}

#[test]
fn every_field_of_an_event_in_memory_is_on_the_page_of_states() {
    let entry = std::fs::read_to_string(root().join("src/store/memory/entry.rs")).expect("a file");
    let (_, fields) = entry.split_once("struct Entry {\n").expect("the struct");
    let (fields, _) = fields.split_once("\n}").expect("its end");
    let fields = fields.lines().filter_map(|line| line.trim().strip_prefix("pub(super) ")?.split(':').next());
    assert_eq!(fields.collect::<BTreeSet<_>>(), first_names(states("Memory")));
}

/// The arrows of the picture, and the rows of the table below it.
#[test]
fn every_arrow_of_the_picture_of_states_is_explained() {
    let (picture, rest) = STATES.split_once("```mermaid\n").and_then(|(_, rest)| rest.split_once("```")).expect("it");
    let number = |text: &str| text.split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let arrows = picture.lines().filter(|line| line.contains("-->"));
    let drawn = arrows.map(|line| line.split_once(": ").and_then(|(_, label)| number(label)).expect(line));
    let told = rest.lines().filter_map(|line| number(line.strip_prefix("| ")?));
    assert_eq!(drawn.collect::<BTreeSet<_>>(), told.collect::<BTreeSet<_>>());
}
