//! NVIDIA's H200 as data: planning for it needs no GPU. Knows only where the table lies.

use super::table::Table;

/// The table of `crates/plan/data/h200.json`.
///
/// # Panics
/// Never: a test reads the file, which is part of the program.
pub fn h200() -> Table {
    let table = Table::from_json(include_str!("../../data/h200.json"));
    table.expect("the table of the repository is read by a test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::table::interpolate;

    #[test]
    fn the_table_is_well_formed() {
        let table = h200();
        for wire in &table.wire {
            assert!(wire.points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{wire:?}");
        }
        let rules = |name: &str| table.kernels.iter().any(|rule| rule.node == name);
        for pattern in table.patterns.iter().filter(|pattern| *pattern != "elementwise") {
            assert!(rules(pattern), "no kernel for {pattern}");
        }
    }

    #[test]
    fn curves_are_linear_between_points() {
        let points = [(10, 100), (20, 200), (40, 240)];
        for (bytes, ns) in [(0, 100), (10, 100), (15, 150), (20, 200), (30, 220), (80, 320)] {
            assert_eq!(interpolate(&points, bytes), ns, "{bytes}");
        }
    }
}
