//! `nvidia-smi topo -m`: how devices and network cards are connected.
//!
//! Facts of the run: `topology.link` ("GPU0 GPU1 NV18", one per pair of the upper triangle and per card);
//! `topology.cpus` ("GPU0 0-31"), `topology.numa` ("GPU0 0"); `topology.card` ("NIC0 mlx5_0").

use timeline::Line;

use super::{Context, Grammar};

/// The grammar.
#[derive(Debug, Default)]
pub struct SmiTopology {
    columns: Vec<String>,
}

fn is_link(cell: &str) -> bool {
    ["X", "PIX", "PXB", "PHB", "NODE", "SYS"].contains(&cell)
        || cell.strip_prefix("NV").is_some_and(|count| count.parse::<u32>().is_ok())
}

fn is_node(cell: &str) -> bool {
    ["GPU", "NIC", "mlx5_", "mlx4_", "bnxt_re", "irdma"].iter().any(|start| {
        let number = cell.strip_prefix(start).filter(|rest| !rest.is_empty());
        number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
    })
}

impl Grammar for SmiTopology {
    fn name(&self) -> &'static str {
        "nvidia-smi-topology"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let words: Vec<&str> = text.split_whitespace().take(256).collect();
        let nodes = words.iter().take_while(|word| is_node(word)).count();
        if nodes >= 2 || (nodes == 1 && text.contains("CPU Affinity")) {
            self.columns = words[..nodes].iter().map(|word| (*word).to_owned()).collect();
            return true;
        }
        if self.columns.is_empty() {
            return false;
        }
        let Some(first) = words.first() else { return false };
        if is_node(first) && words.get(1).is_some_and(|word| is_link(word)) {
            let own = self.columns.iter().position(|column| column == first).unwrap_or(0);
            for (at, (column, link)) in self.columns.iter().zip(&words[1..]).enumerate() {
                if at > own && is_link(link) {
                    context.fact(None, "topology.link", format!("{first} {column} {link}"), line);
                }
            }
            let rest = words.get(1 + self.columns.len()..).unwrap_or(&[]);
            if let (true, [cpus, numa, ..]) = (first.starts_with("GPU"), rest) {
                context.fact(None, "topology.cpus", format!("{first} {cpus}"), line);
                context.fact(None, "topology.numa", format!("{first} {numa}"), line);
            }
            return true;
        }
        if let (true, [name, card]) = (first.ends_with(':'), &words[..]) {
            let name = name.trim_end_matches(':');
            if is_node(name) {
                context.fact(None, "topology.card", format!("{name} {card}"), line);
                return true;
            }
        }
        let legend = ["Legend:", "X", "SYS", "NODE", "PHB", "PXB", "PIX", "NV#", "NIC"];
        let explains =
            words.get(1) == Some(&"=") || words.len() == 1 || words.get(1) == Some(&"Legend:");
        legend.contains(first) && explains
    }
}
