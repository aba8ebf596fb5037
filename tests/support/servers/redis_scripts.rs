//! What the scripts of the inbox do on a server: how many commands each of them calls, and how many bytes pass through it. The server
//! tells by `MONITOR`, which names every command that a script calls behind the script itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::redis::RedisServer;

const FILES: [&str; 3] = [
    include_str!("../../../src/store/redis/lua/events.lua"),
    include_str!("../../../src/store/redis/lua/queue.lua"),
    include_str!("../../../src/store/redis/lua/operators.lua"),
];

/// The scripts, by the section that each of them ends with.
const SCRIPTS: [&str; 16] = [
    "browse",
    "bury",
    "complete",
    "counts",
    "discard",
    "enqueue",
    "find_leased",
    "forget",
    "get",
    "lease",
    "purge",
    "release",
    "renew",
    "requeue",
    "sweep",
    "waiting",
];

/// How long the server may take to tell.
const PATIENCE: Duration = Duration::from_secs(60);

/// The names of scripts, by the digests that the server knows them by.
pub(crate) struct Names(BTreeMap<String, &'static str>);

impl Names {
    /// Loads every script into the server, with and without its flags: one of these texts is what the store calls.
    pub(crate) fn load(server: &RedisServer) -> Self {
        let mut names = BTreeMap::new();
        for name in SCRIPTS {
            let mut code = String::new();
            append(name, &mut code, &mut Vec::new());
            for code in [["#!lua flags=allow-oom\n", &code].concat(), code] {
                let digest = server.command(&["SCRIPT", "LOAD", &code]);
                names.insert(digest.trim().to_owned(), name);
            }
        }
        Self(names)
    }

    /// The name of the script with this digest.
    pub(crate) fn of(&self, digest: &str) -> &'static str {
        self.0.get(digest).unwrap_or_else(|| panic!("{digest} is none of the inbox's scripts"))
    }
}

/// Appends a section without its comments, behind those that it needs, as the store does.
fn append(name: &'static str, code: &mut String, appended: &mut Vec<&'static str>) {
    if appended.contains(&name) {
        return;
    }
    appended.push(name);
    let mut sections = FILES.iter().flat_map(|file| file.split("-- name: ").skip(1));
    let section = sections.find_map(|section| section.strip_prefix(name)?.strip_prefix('\n')).expect("a section");
    let needed = section.lines().next().and_then(|line| line.strip_prefix("-- needs: ")).unwrap_or_default();
    needed.split_terminator(", ").for_each(|needed| append(needed, code, appended));
    for line in section.lines().filter(|line| !line.is_empty() && !line.trim_start().starts_with("--")) {
        code.push_str(line);
        code.push('\n');
    }
}

/// One run of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    /// How many commands it called.
    pub(crate) calls: usize,
    /// What it was called with, what it called commands with, and what it read of requests.
    pub(crate) bytes: usize,
}

/// Listens to what a server does.
pub(crate) struct Monitor<'a> {
    server: &'a RedisServer,
    names: Names,
    lines: BufReader<TcpStream>,
    asked: usize,
}

impl<'a> Monitor<'a> {
    pub(crate) fn on(server: &'a RedisServer) -> Self {
        let names = Names::load(server);
        let stream = TcpStream::connect(server.address()).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        (&stream).write_all(b"MONITOR\r\n").expect("a server");
        let mut monitor = Self { server, names, lines: BufReader::new(stream), asked: 0 };
        assert_eq!(monitor.line(), b"+OK\r\n");
        monitor
    }

    /// The scripts that the server has run since this was last asked.
    pub(crate) fn runs(&mut self) -> Vec<Run> {
        self.asked += 1;
        let mark = format!("the end of part {}", self.asked);
        self.server.command(&["ECHO", &mark]);
        let mut runs: Vec<Run> = Vec::new();
        loop {
            let line = self.line();
            let (source, words) = read(&line);
            match (&*words[0].to_ascii_uppercase(), runs.last_mut()) {
                (b"ECHO", _) if words[1] == mark.as_bytes() => return runs,
                (b"EVALSHA", _) => {
                    let name = self.names.of(std::str::from_utf8(&words[1]).expect("a digest"));
                    runs.push(Run { name, calls: 0, bytes: length(&words) });
                }
                (b"EVAL", _) => panic!("the server has all scripts"),
                (command, Some(run)) if source == b"lua" => {
                    run.calls += 1;
                    run.bytes += length(&words);
                    if command == b"GET" {
                        run.bytes += self.request_length(&words[1]);
                    }
                }
                _ => {}
            }
        }
    }

    /// How long what is under a key is, if it is a request.
    fn request_length(&self, key: &[u8]) -> usize {
        let key = String::from_utf8_lossy(key);
        if !key.contains("inbox:request:") {
            return 0;
        }
        self.server.command(&["STRLEN", &key]).trim().parse().expect("a number")
    }

    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).expect("the server tells");
        assert!(line.ends_with(b"\n"), "the server has closed the connection");
        line
    }
}

/// The most that any run of each script called, and that passed through it.
pub(crate) fn most(runs: &[Run]) -> BTreeMap<&'static str, Run> {
    let mut most: BTreeMap<&'static str, Run> = BTreeMap::new();
    for run in runs {
        let known = most.entry(run.name).or_insert(*run);
        (known.calls, known.bytes) = (known.calls.max(run.calls), known.bytes.max(run.bytes));
    }
    most
}

fn length(words: &[Vec<u8>]) -> usize {
    words.iter().map(Vec::len).sum()
}

/// Who sent a command, and its words, out of a line such as `+1700000000.000000 [0 lua] "GET" "a key"`.
fn read(line: &[u8]) -> (&[u8], Vec<Vec<u8>>) {
    let start = line.iter().position(|byte| *byte == b'[').expect("a source");
    let end = start + line[start..].iter().position(|byte| *byte == b']').expect("the end of the source");
    let source = line[start..end].split(|byte| *byte == b' ').nth(1).expect("a database and a source");
    let (mut words, mut rest) = (Vec::new(), &line[end..]);
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (word, behind) = word(&rest[quote + 1..]);
        words.push(word);
        rest = behind;
    }
    (source, words)
}

/// A word up to its quote, and what is behind that.
fn word(mut text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut word = Vec::new();
    loop {
        match text {
            [b'"', rest @ ..] => return (word, rest),
            [b'\\', b'x', high, low, rest @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                word.push(u8::from_str_radix(digits, 16).expect("two digits"));
                text = rest;
            }
            // Which control character it is does not matter here.
            [b'\\', escaped, rest @ ..] => {
                word.push(*escaped);
                text = rest;
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                text = rest;
            }
            [] => panic!("a word without an end"),
        }
    }
}
