//! The README and the pages of `docs/` say what the crate itself says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::Scheme;

use crate::examples::schemes::Given;
use crate::examples::{demo, listing, schemes};

const README: &str = include_str!("../../README.md");
const PROVIDERS: &str = include_str!("../../docs/providers.md");
const TROUBLESHOOTING: &str = include_str!("../../docs/troubleshooting.md");
const REJECTIONS: &str = include_str!("../../src/rejection.rs");
const MANIFEST: &str = include_str!("../../Cargo.toml");
const GUIDE: &str = include_str!("../../src/guide.rs");
const LINKS: &str = include_str!("../../src/guide_links.md");

/// The pages that name tests: their texts, and how many they name at least.
const PAGES_WITH_TESTS: [(&str, &str, usize); 4] = [
    ("stores", include_str!("../../docs/stores.md"), 12),
    ("inbox-and-workers", include_str!("../../docs/inbox-and-workers.md"), 6),
    ("guarantees", include_str!("../../docs/guarantees.md"), 20),
    ("exactly-once", include_str!("../../docs/exactly-once.md"), 7),
];

/// One provider: its name, the function, what is signed, where the id is, the feature.
type Row = [String; 5];

/// The cells of the first table under this heading, without backticks.
fn table<const N: usize>(page: &str, heading: &str) -> Vec<[String; N]> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
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
    let rows: Vec<Row> = table(PROVIDERS, "Schemes");
    for name in schemes::names() {
        let (scheme, function) = (scheme(name), function(name));
        let of_it: Vec<&Row> = rows.iter().filter(|row| row[1] == function).collect();
        let [[_, _, signs, id, feature]] = of_it[..] else { panic!("one row for {function}, and not {of_it:?}") };
        assert_eq!(*signs, scheme.signs(), "what {name} signs");
        assert_eq!(*id, scheme.profile().id.to_string(), "the id of {name}");
        assert_eq!(*feature, listing::feature(&*scheme).unwrap_or_default(), "the feature of {name}");
    }
    assert_eq!(rows.len(), schemes::names().count(), "no row without a scheme");
    assert!(README.contains("Forty schemes") && rows.len() == 40, "the README says how many there are");
}

#[test]
fn every_scheme_has_a_row_that_says_where_its_secret_is() {
    let rows: Vec<[String; 3]> = table(PROVIDERS, "Where the secret is");
    let functions: BTreeSet<String> = schemes::names().map(function).collect();
    assert_eq!(rows.iter().map(|[function, _, _]| function.clone()).collect::<BTreeSet<_>>(), functions);
    assert_eq!(rows.len(), functions.len(), "one row each");
}

#[test]
fn every_feature_has_a_row() {
    let (_, features) = MANIFEST.split_once("\n[features]\n").expect("features");
    let (features, _) = features.split_once("\n[").expect("another section");
    let mut features: Vec<&str> = features.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    features.retain(|feature| *feature != "default");
    let mut rows: Vec<String> = table(README, "Features").into_iter().map(|[feature, _, _]| feature).collect();
    rows.sort_unstable();
    features.sort_unstable();
    assert_eq!(rows, features);
}

#[test]
fn readme_has_at_most_a_thousand_words() {
    let words = README.split_whitespace().count();
    assert!(words <= 1_000, "{words} words: a page of docs/ has room for more");
}

/// All Rust files below `path`, or it alone.
fn sources(path: PathBuf) -> Vec<PathBuf> {
    match std::fs::read_dir(&path) {
        Ok(entries) => entries.flat_map(|entry| sources(entry.expect("an entry").path())).collect(),
        Err(_) => vec![path],
    }
}

/// What the tables with the heading "shown by" name: places with the names of tests behind them, or before them (`name` in
/// `place`).
#[test]
fn every_test_that_the_pages_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text: String = ["src", "tests"]
        .into_iter()
        .flat_map(|folder| sources(root.join(folder)))
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .map(|file| std::fs::read_to_string(file).expect("a source"))
        .collect();
    for (page, content, at_least) in PAGES_WITH_TESTS {
        let (_, rows) = content.split_once("| shown by |").expect("the table");
        let rows: Vec<&str> = rows.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        assert!(rows.len() >= 4, "{page}: {rows:?}");
        let mut tests = 0;
        for row in rows {
            let shown = row.trim_matches('|').rsplit('|').next().expect("a cell");
            assert!(shown.contains('`'), "{page}: nothing shows {row}");
            // Every other piece is between backticks.
            for name in shown.split('`').skip(1).step_by(2) {
                if name.contains('/') {
                    let (folder, file) = (root.join(name), root.join(format!("{name}.rs")));
                    assert!(folder.is_dir() || file.is_file(), "{page}: there is no {name}");
                    continue;
                }
                tests += 1;
                let declared = match name.strip_suffix('…') {
                    Some(start) => vec![format!("fn {start}")],
                    // Some cases are generic over the database.
                    None => vec![format!("fn {name}("), format!("fn {name}<")],
                };
                assert!(declared.iter().any(|form| text.contains(form)), "{page}: there is no test {name}");
            }
        }
        assert!(tests >= at_least, "{page}: {tests} names were found");
    }
}

/// The names and statuses of all kinds of rejections, from the macro that declares them.
fn rejections() -> BTreeSet<(String, u16)> {
    let (_, kinds) = REJECTIONS.rsplit_once("\nkinds! {").expect("the macro");
    let status = |name: &str| match name {
        "UNAUTHORIZED" => 401,
        "FORBIDDEN" => 403,
        "METHOD_NOT_ALLOWED" => 405,
        "REQUEST_TIMEOUT" => 408,
        "CONFLICT" => 409,
        "PAYLOAD_TOO_LARGE" => 413,
        "UNSUPPORTED_MEDIA_TYPE" => 415,
        "BAD_REQUEST" => 400,
        "SERVICE_UNAVAILABLE" => 503,
        other => panic!("{other} is new here"),
    };
    let kinds = kinds.lines().filter_map(|line| line.trim().split_once(" = \"")).map(|(_, rest)| {
        let (name, rest) = rest.split_once("\", ").expect("a name");
        (name.to_owned(), status(rest.split(',').next().expect("a status")))
    });
    kinds.collect()
}

#[test]
fn every_rejection_is_explained_with_its_status() {
    let rows = TROUBLESHOOTING.lines().filter(|line| line.starts_with("| `"));
    let explained = rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (name, status) = (cells.next()?.trim_matches('`').to_owned(), cells.next()?.parse().ok()?);
        Some((name, status))
    });
    let explained: BTreeSet<(String, u16)> = explained.collect();
    assert!(explained.contains(&(RejectionKind::Stale.as_str().to_owned(), RejectionKind::Stale.status().as_u16())));
    assert_eq!(explained, rejections());
}

/// The files below this folder of which the name ends so.
fn named(folder: &str, ending: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    names.filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn every_page_is_a_module_of_the_guide_and_every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = named("docs", ".md");
    assert!(pages.len() >= 13, "{pages:?}");
    for page in &pages {
        assert!(GUIDE.contains(&format!("= \"{page}\";")), "{page} is no module of the guide");
        let text = std::fs::read_to_string(root.join("docs").join(page)).expect("a page");
        for line in text.lines().filter(|line| line.starts_with('[')) {
            let Some((label, file)) = line.split_once("]: ") else { continue };
            assert!(root.join("docs").join(file).is_file(), "{page}: there is no {file}");
            assert!(LINKS.contains(&format!("{label}]: ")), "{page}: {label}] leads nowhere in rustdoc");
        }
    }
    for line in README.lines().filter(|line| line.starts_with('[')) {
        let Some((label, file)) = line.split_once("]: ") else { continue };
        assert!(root.join(file).is_file(), "there is no {file}");
        assert!(LINKS.contains(&format!("{label}]: ")), "{label}] leads nowhere in rustdoc");
    }
}

#[test]
fn picture_in_rustdoc_is_the_one_in_the_readme() {
    use base64::Engine as _;
    let (_, picture) = LINKS.split_once("data:image/svg+xml;base64,").expect("the picture");
    let picture = base64::engine::general_purpose::STANDARD.decode(picture.trim()).expect("base64");
    assert!(
        picture == include_bytes!("../../docs/delivery.svg"),
        "after a change: write `base64 -w0 docs/delivery.svg` into src/guide_links.md"
    );
}

#[test]
fn every_example_is_listed() {
    let index = include_str!("../../examples/README.md");
    for example in named("examples", ".rs") {
        assert!(index.contains(&format!("[`{}`]({example})", example.trim_end_matches(".rs"))), "{example}");
    }
}
