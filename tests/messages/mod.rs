//! What the compiler says to users who give the wrong thing: the crate's own sentence, and not only a bound that does not
//! hold.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages/programs");

/// The features that this test was built with: with others, the crate would have to be built once more.
fn features() -> Vec<&'static str> {
    let all = [
        ("axum", cfg!(feature = "axum")),
        ("sha1", cfg!(feature = "sha1")),
        ("ed25519", cfg!(feature = "ed25519")),
        ("p256", cfg!(feature = "p256")),
        ("redis", cfg!(feature = "redis")),
        ("postgres", cfg!(feature = "postgres")),
        ("sqlite", cfg!(feature = "sqlite")),
        ("tracing", cfg!(feature = "tracing")),
        ("testing", cfg!(feature = "testing")),
    ];
    all.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect()
}

/// The compiler that came with the cargo of this test: other folders may ask rustup for another one.
fn compiler() -> PathBuf {
    let beside_cargo = Path::new(env!("CARGO")).with_file_name("rustc");
    match std::env::var_os("RUSTC") {
        Some(chosen) => chosen.into(),
        None if beside_cargo.exists() => beside_cargo,
        None => "rustc".into(),
    }
}

fn json_lines(output: &[u8]) -> impl Iterator<Item = Value> + '_ {
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// The libraries that an example of the crate is linked with, which is everything that the programs use. They are the
/// ones of this test, so there is nothing to build but the example.
fn libraries() -> HashMap<String, PathBuf> {
    // <target>/<profile>/deps/main-<hash>
    let test = std::env::current_exe().expect("this test's own path");
    let folder = test.parent().and_then(Path::parent).expect("the folder of the profile");
    let profile = folder.file_name().and_then(|name| name.to_str()).expect("a profile");
    let built = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC", compiler())
        .args(["build", "--offline", "--example", "hyper", "--message-format", "json", "--no-default-features"])
        .args(["--features", &features().join(","), "--profile", if profile == "debug" { "dev" } else { profile }])
        .arg("--target-dir")
        .arg(folder.parent().expect("the target folder"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo");
    assert!(built.status.success(), "cargo could not build the example");
    let is_library = |file: &&Value| file.as_str().is_some_and(|name| name.ends_with(".rlib"));
    json_lines(&built.stdout)
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|artifact| {
            let file = artifact["filenames"].as_array()?.iter().find(is_library)?.as_str()?;
            Some((artifact["target"]["name"].as_str()?.replace('-', "_"), file.into()))
        })
        .collect()
}

/// What the compiler says of each file.
fn errors() -> BTreeMap<String, Vec<String>> {
    let libraries = libraries();
    let has_sqlx = cfg!(any(feature = "postgres", feature = "sqlite"));
    let used = ["tower_webhook", "axum", "tower"].into_iter().chain(has_sqlx.then_some("sqlx"));
    let mut rustc = Command::new(compiler());
    rustc.args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--error-format", "json"]);
    rustc.arg("--out-dir").arg(env!("CARGO_TARGET_TMPDIR"));
    for name in used {
        let library = libraries.get(name).unwrap_or_else(|| panic!("{name} is not among the libraries"));
        rustc.arg("--extern").arg(format!("{name}={}", library.display()));
        rustc.arg("-L").arg(format!("dependency={}", library.parent().expect("a folder").display()));
    }
    if has_sqlx {
        rustc.args(["--cfg", r#"feature="sqlx""#]);
    }
    let output = rustc.arg(format!("{PROGRAMS}/main.rs")).output().expect("rustc");
    assert!(!output.status.success(), "the mistakes compile");
    let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for message in json_lines(&output.stderr).filter(|message| message["level"] == "error") {
        let text = message["rendered"].as_str().unwrap_or_default();
        let spans = message["spans"].as_array().expect("spans");
        let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else { continue };
        let file = Path::new(span["file_name"].as_str().unwrap_or_default());
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        errors.entry(name.to_owned()).or_default().push(text.to_owned());
    }
    errors
}

/// The sentences that a program begins with.
fn expected(program: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(program).expect("a program");
    text.lines().filter_map(|line| Some(line.strip_prefix("//~ ")?.to_owned())).collect()
}

#[test]
fn compiler_says_what_belongs_where_something_else_is_given() {
    let (errors, mut unsaid) = (errors(), Vec::new());
    for program in std::fs::read_dir(PROGRAMS).expect("the programs") {
        let path = program.expect("a program").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let is_left_out = name == "connection.rs" && !cfg!(any(feature = "postgres", feature = "sqlite"));
        if name == "main.rs" || is_left_out {
            assert!(!errors.contains_key(name), "{errors:#?}");
            continue;
        }
        let (said, sentences) = (errors.get(name).map(|errors| errors.concat()).unwrap_or_default(), expected(&path));
        assert!(!sentences.is_empty(), "{name} does not begin with a sentence");
        let missing = sentences.into_iter().filter(|sentence| !said.contains(sentence));
        unsaid.extend(missing.map(|sentence| format!("{name}: the compiler does not say {sentence:?}, but:\n{said}")));
    }
    assert!(unsaid.is_empty(), "{}", unsaid.join("\n"));
}
