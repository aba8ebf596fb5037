//! The README's tables say what the crate itself says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tower_webhook::scheme::Scheme;

use crate::examples::schemes::Given;
use crate::examples::{demo, listing, schemes};

const README: &str = include_str!("../../README.md");
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// One provider: its name, the function, what is signed, where the id is, the feature.
type Row = [String; 5];

/// The cells of the first table under this heading, without backticks.
fn table<const N: usize>(heading: &str) -> Vec<[String; N]> {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let lines = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        cells.try_into().unwrap_or_else(|cells| panic!("{N} cells, and not {cells:?}"))
    };
    // Not the headings, nor the line below them.
    lines.skip(2).map(cells).collect()
}

fn scheme(name: &str) -> Arc<dyn Scheme> {
    let (secrets, url) = (demo::secrets(&[], name), Some("https://receiver.example/".to_owned()));
    schemes::scheme(name, Given { secrets, url, ..Given::default() }).expect("a demo secret that fits")
}

fn function(name: &str) -> String {
    name.replace('-', "_")
}

#[test]
fn every_scheme_has_a_row_that_says_what_the_scheme_says() {
    let rows: Vec<Row> = table("Schemes");
    for name in schemes::names() {
        let (scheme, function) = (scheme(name), function(name));
        let of_it: Vec<&Row> = rows.iter().filter(|row| row[1] == function).collect();
        let [[_, _, signs, id, feature]] = of_it[..] else { panic!("one row for {function}, and not {of_it:?}") };
        assert_eq!(*signs, scheme.signs(), "what {name} signs");
        assert_eq!(*id, scheme.profile().id.to_string(), "the id of {name}");
        assert_eq!(*feature, listing::feature(&*scheme).unwrap_or_default(), "the feature of {name}");
    }
    assert_eq!(rows.len(), schemes::names().count(), "no row without a scheme");
}

#[test]
fn every_feature_has_a_row() {
    let (_, features) = MANIFEST.split_once("\n[features]\n").expect("features");
    let (features, _) = features.split_once("\n[").expect("another section");
    let mut features: Vec<&str> = features.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    features.retain(|feature| *feature != "default");
    let mut rows: Vec<String> = table("Features").into_iter().map(|[feature, _, _]| feature).collect();
    rows.sort_unstable();
    features.sort_unstable();
    assert_eq!(rows, features);
}

/// All Rust files below `path`, or it alone.
fn sources(path: PathBuf) -> Vec<PathBuf> {
    match std::fs::read_dir(&path) {
        Ok(entries) => entries.flat_map(|entry| sources(entry.expect("an entry").path())).collect(),
        Err(_) => vec![path],
    }
}

/// What the stores' table is shown by: places with the names of tests behind them, or before them (`name` in `place`).
#[test]
fn every_test_that_the_readme_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text: String = ["src", "tests"]
        .into_iter()
        .flat_map(|folder| sources(root.join(folder)))
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .map(|file| std::fs::read_to_string(file).expect("a source"))
        .collect();
    let (_, rows) = README.split_once("| shown by |").expect("the stores' table");
    let rows: Vec<&str> = rows.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 7, "{rows:?}");
    let mut tests = 0;
    for row in rows {
        let shown = row.trim_matches('|').rsplit('|').next().expect("a cell");
        // Every other piece is between backticks.
        for name in shown.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                let (folder, file) = (root.join(name), root.join(format!("{name}.rs")));
                assert!(folder.is_dir() || file.is_file(), "there is no {name}");
                continue;
            }
            tests += 1;
            let declared = match name.strip_suffix('…') {
                Some(start) => format!("fn {start}"),
                None => format!("fn {name}("),
            };
            assert!(text.contains(&declared), "there is no test {name}");
        }
    }
    assert!(tests >= 12, "{tests} names were found");
}
