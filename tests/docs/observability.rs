//! The page on observability has every event that `src/telemetry` emits, with its levels and fields, and no other.

use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../docs/observability.md");
const TELEMETRY: &str = include_str!("../../src/telemetry/traced.rs");
const LEVELS: [&str; 4] = ["ERROR", "WARN", "INFO", "DEBUG"];

type Names = BTreeSet<String>;

/// The levels and the fields of each message.
type Events = BTreeMap<String, (Names, Names)>;

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
    names.into_iter().map(str::to_owned).collect()
}

/// The text between each pair of backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of all rows of tables.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// The rows of the page that begin with levels.
fn documented() -> Events {
    let mut events = Events::new();
    for row in rows(PAGE).filter(|row| LEVELS.iter().any(|level| row[0].starts_with(level))) {
        let message = quoted(row[1]).next().expect("a message").to_owned();
        let found = (names(row[0].split(", ")), names(quoted(row[2])));
        assert_eq!(events.insert(message.clone(), found), None, "{message} has two rows");
    }
    events
}

/// What follows `start`, up to the parenthesis that closes it.
fn arguments<'a>(source: &'a str, start: &str) -> &'a str {
    let (_, rest) = source.split_once(start).expect("the start");
    let (mut depth, mut is_text) = (1, false);
    for (at, character) in rest.char_indices() {
        match character {
            '"' => is_text = !is_text,
            '(' if !is_text => depth += 1,
            ')' if !is_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &rest[..at];
        }
    }
    panic!("{start} is not closed");
}

/// The arguments of a macro, split at the commas between them.
fn split(arguments: &str) -> Vec<&str> {
    let (mut pieces, mut begin, mut depth, mut is_text) = (Vec::new(), 0, 0, false);
    for (at, character) in arguments.char_indices() {
        match character {
            '"' => is_text = !is_text,
            '(' | '{' if !is_text => depth += 1,
            ')' | '}' if !is_text => depth -= 1,
            ',' if !is_text && depth == 0 => {
                pieces.push(arguments[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(arguments[begin..].trim());
    pieces
}

/// The fields among the arguments: `name = value`, `name`, `%name`.
fn fields(arguments: &[&str]) -> Names {
    let name = |argument: &&str| {
        let name = argument.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?']).to_owned();
        Some(name)
            .filter(|name| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'))
    };
    arguments.iter().filter_map(name).collect()
}

/// The last text among the arguments: its message.
fn message(arguments: &str) -> String {
    let texts = arguments.split('"').skip(1).step_by(2).filter(|text| !text.starts_with("tower_webhook"));
    let lines = texts.last().expect("a message").split("\\\n");
    lines.enumerate().map(|(number, line)| if number == 0 { line } else { line.trim_start() }).collect()
}

/// The levels that occur in a function.
fn levels(function: &str) -> Names {
    let is_in = |level: &&&str| {
        let verb = level.to_lowercase();
        let forms = [format!("Level::{level}"), format!("tracing::{verb}!("), format!("tell!({verb},")];
        let spaceless: String = function.split_whitespace().collect();
        forms.iter().any(|form| spaceless.contains(form))
    };
    names(LEVELS.iter().filter(is_in).copied())
}

/// The events in the source: one for each function that emits one.
fn emitted() -> Events {
    let mut events = Events::new();
    // Of the two macros before the functions: the fields that they add.
    let of_key = fields(&split(arguments(TELEMETRY, "tracing::$level!("))[1..]);
    let of_audit = fields(&split(arguments(TELEMETRY, "tracing::event!(")));
    for function in TELEMETRY.split("\npub(crate) fn ").skip(1) {
        let forms = [
            "tell_audit!(",
            "tell!(",
            "tracing::event!(",
            "tracing::error!(",
            "tracing::warn!(",
            "tracing::info!(",
            "tracing::debug!(",
        ];
        let first = forms.iter().filter_map(|form| Some((function.find(form)?, *form))).min();
        let Some((_, form)) = first else {
            assert!(function.contains("tracing::enabled!("), "what does this emit? {function}");
            continue;
        };
        let arguments = arguments(function, form);
        let pieces = split(arguments);
        let mut found = match form {
            "tell!(" => fields(&pieces[2..]),
            "tell_audit!(" => fields(&pieces[2..]),
            _ => fields(&pieces),
        };
        found.extend(match form {
            "tell!(" => of_key.clone(),
            "tell_audit!(" => of_audit.clone(),
            _ => Names::new(),
        });
        found.remove("target");
        // The first text of an audit is its message, and values may follow.
        let message = match form {
            "tell_audit!(" => pieces[2].trim_matches('"').to_owned(),
            _ => message(arguments),
        };
        events.insert(message, (levels(function), found));
    }
    events
}

#[test]
fn every_event_is_on_the_page_with_its_levels_and_fields() {
    let (documented, emitted) = (documented(), emitted());
    assert!(emitted.len() > 30, "{emitted:#?}");
    for (message, found) in &emitted {
        assert_eq!(documented.get(message), Some(found), "{message}");
    }
    let unknown: Vec<_> = documented.keys().filter(|message| !emitted.contains_key(*message)).collect();
    assert!(unknown.is_empty(), "nothing emits {unknown:?}");
}

#[test]
fn every_field_is_explained() {
    let (_, section) = PAGE.split_once("\n## Fields\n").expect("the heading");
    let section = section.split("\n## ").next().expect("a section");
    let explained: Names = rows(section).skip(2).flat_map(|row| names(quoted(row[0]))).collect();
    let emitted: Names = emitted().into_values().flat_map(|(_, fields)| fields).collect();
    assert_eq!(explained, emitted);
}

/// The stable names in a file of the source, each of a variant: `Self::Completed => "completed"`.
fn outcomes(source: &str) -> Names {
    let lines = source.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \""));
    lines.map(|(_, name)| name.trim_end_matches("\",").to_owned()).collect()
}

#[test]
fn every_outcome_is_explained() {
    let source = include_str!("../../src/outcome.rs");
    let (of_deliveries, of_attempts) = source.split_once("pub enum AttemptOutcome").expect("both");
    for (heading, source) in [("| outcome of a delivery |", of_deliveries), ("| outcome of an attempt |", of_attempts)]
    {
        let (_, table) = PAGE.split_once(heading).expect("the table");
        let table = table.split("\n\n").next().expect("its end");
        let explained: Names = rows(table).skip(1).flat_map(|row| names(quoted(row[0]).take(1))).collect();
        assert_eq!(explained, outcomes(source), "{heading}");
    }
}

#[test]
fn every_target_is_named() {
    let targets: Names = names(TELEMETRY.split("target: \"").skip(1).filter_map(|rest| rest.split('"').next()));
    let (_, section) = PAGE.split_once("\n## Targets\n").expect("the heading");
    let section = section.split("\n\nBoth").next().expect("a section");
    assert_eq!(rows(section).skip(2).flat_map(|row| names(quoted(row[0]))).collect::<Names>(), targets);
}
