//! Where the step's time goes: every task between two events, added up by class and by name, beside the aims.
//! Knows tasks; not what is in them.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Result;
use native::driver::{Event, Stream};
use serde_json::{Value, json};

use super::{
    matmuls::median,
    task::{Class, Task},
};

/// Runs `tasks` one by one `steps` times and adds up. `operations` gives a matmul's flops by name.
pub fn profile(
    stream: &Stream,
    tasks: &[Task],
    steps: usize,
    run: impl Fn(&Task) -> native::Result<()>,
    operations: impl Fn(&Task) -> f64,
) -> Result<Value> {
    let context = stream.context();
    let marks =
        (0..=tasks.len()).map(|_| Event::timing(context)).collect::<native::Result<Vec<_>>>()?;
    let mut times = vec![vec![]; tasks.len()];
    for step in 0..steps + 1 {
        marks[0].record(stream)?;
        for (task, mark) in tasks.iter().zip(&marks[1..]) {
            run(task)?;
            mark.record(stream)?;
        }
        stream.synchronize()?;
        // The first pass warms up.
        for (index, of_task) in times.iter_mut().enumerate().filter(|_| step > 0) {
            of_task.push(marks[index + 1].milliseconds_since(&marks[index])?);
        }
    }
    let mut classes: BTreeMap<Class, f64> = BTreeMap::new();
    let mut names: BTreeMap<(Class, &str), (usize, f64, f64, f64)> = BTreeMap::new();
    for (task, of_task) in tasks.iter().zip(&times) {
        let ms = median(of_task);
        *classes.entry(task.class).or_default() += ms;
        let entry = names.entry((task.class, task.name.as_str())).or_default();
        entry.0 += 1;
        entry.1 += ms;
        entry.2 += operations(task);
        entry.3 += task.bytes;
    }
    let total: f64 = classes.values().sum();
    let mut text = format!("{:<40} {:>8} {:>6} {:>7} {:>7}\n", "class", "ms", "%", "aim", "over");
    let mut rows = vec![];
    for (class, label, aim) in Class::AIMS {
        let ms = classes.get(&class).copied().unwrap_or(0.0);
        let share = 100.0 * ms / total;
        writeln!(text, "{label:<40} {ms:8.3} {share:6.1} {aim:7.2} {:+7.2}", ms - aim)?;
        rows.push(json!({"class": label, "ms": ms, "aim_ms": aim}));
    }
    let aims: f64 = Class::AIMS.iter().map(|(_, _, aim)| aim).sum();
    writeln!(text, "{:<40} {total:8.3} {:6.1} {aims:7.2} {:+7.2}", "sum", 100.0, total - aims)?;
    writeln!(
        text,
        "\n{:<40} {:>5} {:>9} {:>9} {:>9} {:>7}",
        "task", "times", "us each", "ms all", "TFLOP/s", "TB/s"
    )?;
    let mut parts = vec![];
    for ((_, name), (count, ms, flops, bytes)) in &names {
        let each = 1e3 * ms / *count as f64;
        let (rate, band) = (flops / ms / 1e9, bytes / ms / 1e9);
        let of = |x: f64, digits| if x > 0.0 { format!("{x:.digits$}") } else { String::new() };
        writeln!(
            text,
            "{name:<40} {count:5} {each:9.1} {ms:9.3} {:>9} {:>7}",
            of(rate, 0),
            of(band, 2)
        )?;
        parts.push(json!({"task": name, "times": count, "us": each, "ms": ms, "tflops": rate, "tbs": band}));
    }
    Ok(json!({"sum_ms": total, "classes": rows, "tasks": parts, "text": text}))
}
