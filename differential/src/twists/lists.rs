use super::{Act, Twist};
use crate::rng::Rng;
use crate::wire::{Form, Wire};

pub(super) const ALL: &[Twist] = &[
    ("signed with both secrets", Act::Draft(|_, draft| draft.signers.push(draft.spare.clone()))),
    ("order changed", Act::Elements(|rng, _, elements| rng.shuffle(elements))),
    ("element repeated", Act::Elements(repeated)),
    ("element missing", Act::Elements(missing)),
    ("version changed", Act::Elements(reversioned)),
    ("signature of another version", Act::Elements(|rng, wire, elements| insert(rng, elements, &other_version(wire)))),
    ("undecodable signature", Act::Elements(undecodable)),
    ("wrong signature", Act::Elements(wrong)),
    ("many signatures", Act::Elements(many)),
    ("very long", Act::Elements(long)),
    ("element that is none", Act::Elements(no_element)),
    ("version that is unheard of", Act::Elements(odd_version)),
    ("second timestamp", Act::Elements(second_timestamp)),
    ("separators changed", Act::Elements(separators)),
];

fn insert(rng: &mut Rng, elements: &mut Vec<String>, element: &str) {
    elements.insert(rng.below(elements.len() + 1), element.to_owned());
}

fn parts(wire: &Wire) -> (char, char, &'static str) {
    match wire.form {
        Form::List { separator, between, version, .. } => (separator, between, version),
        Form::One { .. } => unreachable!("only lists have elements"),
    }
}

fn repeated(rng: &mut Rng, _: &Wire, elements: &mut Vec<String>) {
    if !elements.is_empty() {
        let element = rng.pick(elements);
        insert(rng, elements, &element);
    }
}

fn missing(rng: &mut Rng, _: &Wire, elements: &mut Vec<String>) {
    if !elements.is_empty() {
        elements.remove(rng.below(elements.len()));
    }
}

fn reversioned(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (_, between, version) = parts(wire);
    let other = rng.pick(&["v0", "v2", "v1a", "V1", "v11", "", "t"]);
    for element in elements {
        if let Some(signature) = element.strip_prefix(&format!("{version}{between}")) {
            *element = format!("{other}{between}{signature}");
        }
    }
}

fn other_version(wire: &Wire) -> String {
    let (_, between, _) = parts(wire);
    format!("v0{between}{}", wire.encode(&[7; 32]))
}

fn undecodable(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (_, between, version) = parts(wire);
    let value = rng.pick(&["potato", "", "abc", "=", "00"]);
    insert(rng, elements, &format!("{version}{between}{value}"));
}

fn wrong(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (_, between, version) = parts(wire);
    let signature = wire.encode(&rng.bytes(32));
    insert(rng, elements, &format!("{version}{between}{signature}"));
}

/// Around the cap of sixteen.
fn many(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    for _ in 0..rng.pick(&[13, 14, 15, 16, 17]) {
        wrong(rng, wire, elements);
    }
}

/// Around the cap of 4 KiB, and of one signature only.
fn long(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    for _ in 0..rng.pick(&[20, 100]) {
        elements.push(other_version(wire));
    }
}

fn no_element(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (_, between, _) = parts(wire);
    let element = match rng.below(4) {
        0 => String::new(),
        1 => "potato".to_owned(),
        2 => format!("{between}abc"),
        _ => between.to_string(),
    };
    insert(rng, elements, &element);
}

fn odd_version(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (_, between, _) = parts(wire);
    let version = rng.pick(&["v1-pq", "v1_2", "v1.2", "v1+", "\tv0"]);
    insert(rng, elements, &format!("{version}{between}abc"));
}

fn second_timestamp(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    if let Form::List { between, timestamp: Some(name), .. } = wire.form {
        insert(rng, elements, &format!("{name}{between}12345"));
    }
}

fn separators(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>) {
    let (separator, ..) = parts(wire);
    let whole = wire.join(elements);
    let other = rng.pick(&[", ", ";", "\t", "  ", " ,", "|"]);
    *elements = vec![match rng.below(3) {
        0 => whole.replace(separator, other),
        1 => format!("{whole}{separator}"),
        _ => format!("{separator}{whole}"),
    }];
}
