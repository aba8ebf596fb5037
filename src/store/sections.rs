//! Files of SQL or Lua in named sections.
//!
//! A section begins behind a line `-- name: ` with its name, and ends at the next such line. Lines that begin with `--`
//! are comments.

/// Returns the section with this name.
pub(super) fn section(files: &[&'static str], name: &str) -> &'static str {
    find(files, name).expect("a section")
}

fn find(files: &[&'static str], name: &str) -> Option<&'static str> {
    let mut sections = files.iter().flat_map(|file| file.split("-- name: ").skip(1));
    sections.find_map(|section| section.strip_prefix(name)?.strip_prefix('\n'))
}

/// Returns the lines of a section, without comments and empty lines.
pub(super) fn code(section: &str) -> impl Iterator<Item = &str> {
    section.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"))
}

/// Returns a section of SQL on one line. A name in braces stands for the value of that name, or else for the section:
/// both may have such names in turn. Any other text in braces stays.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn sql(files: &[&'static str], name: &str, values: &[(&str, &str)]) -> String {
    fill(files, &one_line(section(files, name)), values)
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn fill(files: &[&'static str], mut text: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    while let Some((before, rest)) = text.split_once('{') {
        let (name, after) = rest.split_once('}').expect("a closing brace");
        filled.push_str(before);
        let value = values.iter().find(|(key, _)| *key == name);
        match (value, find(files, name)) {
            (Some((_, value)), _) => filled.push_str(&fill(files, value, values)),
            (None, Some(section)) => filled.push_str(&fill(files, &one_line(section), values)),
            (None, None) => filled.extend(["{", name, "}"]),
        }
        text = after;
    }
    filled + text
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn one_line(section: &str) -> String {
    code(section).map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests {
    use super::*;

    const FILE: &str = "-- A file.\n\n-- Reads.\n-- name: read\nSELECT {columns}\n  -- Not this.\n  FROM {table}\n \
        WHERE {which}\n\n-- name: columns\na, '{}'\n";

    #[test]
    fn section_is_one_line_with_its_values_and_sections() {
        let read = sql(&["-- name: reader\nx\n", FILE], "read", &[("which", "{columns} = 1")]);
        assert_eq!(read, "SELECT a, '{}' FROM {table} WHERE a, '{}' = 1");
    }
}
