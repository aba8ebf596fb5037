//! Prints figures, and writes them as a flat JSON object.

use std::fmt::Write;

#[derive(Default)]
pub(crate) struct Report {
    numbers: Vec<(String, f64)>,
}

impl Report {
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        self.numbers.push((name.to_owned(), value));
    }

    pub(crate) fn print_and_write(&self, bench: &str) {
        println!();
        let mut json = String::from("{");
        for (index, (name, value)) in self.numbers.iter().enumerate() {
            println!("{name:<28}{value:>8.3}");
            let _ = write!(json, "{}\n  \"{name}\": {value:.4}", if index == 0 { "" } else { "," });
        }
        json.push_str("\n}\n");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        std::fs::create_dir_all(&folder).expect("a folder for the figures");
        std::fs::write(folder.join(format!("{bench}.json")), json).expect("a file for the figures");
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
