//! Prints tables, and writes a flat JSON object of ratios.

use std::fmt::Write;

use crate::Measured;
use crate::variants::Variant;

#[derive(Default)]
pub(crate) struct Report {
    numbers: Vec<(String, f64)>,
}

impl Report {
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        self.numbers.push((name.to_owned(), value));
    }

    /// Nanoseconds of every variant, and their ratio to the second one (`ideal`, or the base of a pair).
    pub(crate) fn table(&self, title: &str, variants: &[Variant], single: &Measured, multi: &Measured) {
        println!("\n{title:<24}{:>14}{:>14}", "current ns", "multi ns");
        for (index, variant) in variants.iter().enumerate() {
            println!("  {:<22}{:>14.0}{:>14.0}", variant.name, single.nanoseconds(index), multi.nanoseconds(index));
        }
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
