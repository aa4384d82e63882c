//! `ncu --csv`: metrics of kernels, one line each.
//!
//! Facts of the run, one set per line: `ncu.kernel`, `ncu.metric` and `ncu.value` with `ncu.unit`.

use timeline::Line;

use super::{Context, Grammar};

/// The grammar.
#[derive(Debug, Default)]
pub struct NcuCsv {
    /// Columns of kernel name, metric name, unit and value.
    columns: Option<[usize; 4]>,
}

impl Grammar for NcuCsv {
    fn name(&self) -> &'static str {
        "ncu-csv"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("==PROF==") || trimmed.starts_with("==WARNING==") {
            return true;
        }
        if trimmed.starts_with("\"ID\",") {
            let cells = cells(trimmed);
            let at = |name: &str| cells.iter().position(|cell| cell == name);
            self.columns =
                match (at("Kernel Name"), at("Metric Name"), at("Metric Unit"), at("Metric Value"))
                {
                    (Some(kernel), Some(name), Some(unit), Some(value)) => {
                        Some([kernel, name, unit, value])
                    }
                    _ => None,
                };
            return true;
        }
        let Some([kernel, name, unit, value]) = self.columns else { return false };
        if !trimmed.starts_with('"') {
            return false;
        }
        let cells = cells(trimmed);
        let get = |at: usize| cells.get(at).map(String::as_str);
        let (Some(kernel), Some(name), Some(unit), Some(value)) =
            (get(kernel), get(name), get(unit), get(value))
        else {
            return false;
        };
        context.fact(None, "ncu.kernel", kernel, line);
        context.fact(None, "ncu.metric", name, line);
        context.fact(None, "ncu.unit", unit, line);
        let number: String = value.chars().filter(|c| *c != ',').collect();
        match number.parse::<f64>() {
            Ok(number) => context.fact(None, "ncu.value", number, line),
            Err(_) => context.fact(None, "ncu.value", value, line),
        }
        true
    }
}

/// Quoted cells; a doubled quote inside is one.
fn cells(text: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cells.last_mut().map(|cell| cell.push('"')).unwrap_or_default();
            }
            '"' => quoted = !quoted,
            ',' if !quoted && cells.len() < 256 => cells.push(String::new()),
            letter => cells.last_mut().map(|cell| cell.push(letter)).unwrap_or_default(),
        }
    }
    cells
}
