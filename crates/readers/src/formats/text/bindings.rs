//! Where launchers put processes: Open MPI 4 and 5 (`--report-bindings`, JOB MAP), Slurm (`--cpu-bind=verbose`).
//!
//! Facts of the process of a rank: `binding.cores` (cores it may run on); `binding.machine_cores` (cores of its node,
//! where the map shows them); `binding.unbound` (the launcher bound it to nothing).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, integer_after},
};

/// The grammar.
#[derive(Debug)]
pub struct Bindings;

impl Grammar for Bindings {
    fn name(&self) -> &'static str {
        "bindings"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if text.contains("cpu-bind") || text.contains("cpu_bind") {
            return slurm(text, line, context).is_some();
        }
        if text.contains("Data for JOB [")
            || text.contains("JOB MAP")
            || text.contains("Data for node: ")
        {
            return true;
        }
        let Some((rank, place)) = rank_and_place(text) else { return false };
        let Ok(rank) = u32::try_from(rank) else { return false };
        let process = context.process_of_rank(rank);
        if place.contains("not bound") || place.contains("UNBOUND") || place.trim() == "N/A" {
            context.fact(process, "binding.unbound", place.trim(), line);
            return true;
        }
        let (own, all) = cores(place);
        if own == 0 {
            return false;
        }
        context.fact(process, "binding.cores", own, line);
        if all > 0 {
            context.fact(process, "binding.machine_cores", all, line);
        }
        true
    }
}

/// Rank and what follows `bound to`, `Bound:` or says that it is not bound.
fn rank_and_place(text: &str) -> Option<(i64, &str)> {
    if let Some(rank) = integer_after(text, "Process rank: ") {
        return Some((rank, after(text, "Bound: ")?));
    }
    let rest = after(text, "MCW rank ").or_else(|| after(text, "] Rank "))?;
    let rank = integer_after(rest, "")?;
    let place = after(rest, " bound to ")
        .filter(|_| !rest.contains(" is not bound"))
        .or_else(|| after(rest, " is "))?;
    Some((rank, place))
}

/// Cores of the process and of its node: by the map `[BB/../..]` where there is one, else by the list of cores.
fn cores(place: &str) -> (i64, i64) {
    let map = place.rsplit_once(": ").or_else(|| place.rsplit_once("]:")).map(|(_, map)| map);
    if let Some(map) = map.filter(|map| map.starts_with('[') && map.contains(['B', '.'])) {
        let cores: Vec<&str> =
            map.split(['[', ']', '/']).filter(|core| !core.trim().is_empty()).collect();
        let own = cores.iter().filter(|core| core.contains('B')).count();
        return (own as i64, cores.len() as i64);
    }
    let mut own = 0;
    for part in place.split("core").skip(1) {
        let part = part.trim_start_matches([':', ' ']);
        let end = part
            .find(|c: char| !(c.is_ascii_digit() || c == '-' || c == ','))
            .unwrap_or(part.len());
        for range in part[..end].split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
                own += last.saturating_sub(first).clamp(0, 1 << 16) + 1;
            }
        }
    }
    // A single hardware thread is at most one core.
    if own == 0 && place.contains("hwt:") {
        own = 1;
    }
    (own, 0)
}

/// `cpu-bind=MASK - node1, task  0  0 [12345]: mask 0x3 set`.
fn slurm(text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
    let rank = integer_after(text, "task ")?;
    let process = context.process_of_rank(u32::try_from(rank).ok()?);
    if let Some(mask) = after(text, "mask 0x") {
        let end = mask.find(|c: char| !c.is_ascii_hexdigit() && c != ',').unwrap_or(mask.len());
        let bits: u32 =
            mask[..end].chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum();
        if text.contains("NULL") || text.contains("=NONE") {
            context.fact(process, "binding.unbound", text.trim(), line);
        } else {
            context.fact(process, "binding.cores", i64::from(bits), line);
        }
        return Some(());
    }
    text.contains("NULL").then(|| context.fact(process, "binding.unbound", text.trim(), line))
}
