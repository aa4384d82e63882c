//! NCCL's topology (NCCL_TOPO_DUMP_FILE) and graphs (NCCL_GRAPH_DUMP_FILE): XML with one tag a line, as NCCL writes it.
//!
//! Facts of the run: `topology.link` ("GPU0 mlx5_0 PXB", one per GPU and network card: PIX, PXB, PHB or SYS by the tags
//! around both); `topology.numa` ("GPU0 0") and `topology.cpus`; `pcie.link` with `pcie.link.speed_gts` and
//! `pcie.link.width` of a GPU's or card's slot; `topology.nvlink` ("GPU0 18 0x068000": links and class of the other
//! end); `nccl.gdr` ("enabled" or "disabled", of a network card); `ib.NAME.rate_gbits`; `nccl.graph` ("0 pattern 4
//! channels 16 intra NVL inter PIX") with `nccl.graph.channels`, `nccl.graph.intra_gbs`, `nccl.graph.inter_gbs`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{between, cut, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct NcclXml {
    inside: bool,
    /// Tags that are open.
    open: Vec<Open>,
    /// Tags seen so far: each has a number of its own.
    tags: u32,
    devices: Vec<Device>,
    cards: Vec<Device>,
}

#[derive(Clone, Debug)]
struct Open {
    number: u32,
    name: String,
    /// Of the `cpu` tag.
    numa: Option<String>,
    cpus: Option<String>,
}

/// A GPU or a network card: its name and the tags around it.
#[derive(Clone, Debug)]
struct Device {
    name: String,
    around: Vec<(u32, bool)>,
    line: Line,
}

/// Hosts have fewer of each.
const MOST_DEVICES: usize = 128;
/// Tags inside each other.
const DEEPEST: usize = 64;

impl Grammar for NcclXml {
    fn name(&self) -> &'static str {
        "nccl-xml"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        let Some(inside) = trimmed.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
            return false;
        };
        if let Some(name) = inside.strip_prefix('/') {
            if let Some(at) = self.open.iter().rposition(|open| open.name == name) {
                self.open.truncate(at);
            }
            if name == "system" {
                self.links(context);
            }
            return self.inside;
        }
        let (tag, ended) = match inside.strip_suffix('/') {
            Some(tag) => (tag, true),
            None => (inside, false),
        };
        let name = tag.split_whitespace().next().unwrap_or("");
        if matches!(name, "system" | "graphs") && tag.contains("version=\"") {
            *self = NcclXml { inside: true, ..NcclXml::default() };
        }
        if !self.inside {
            return false;
        }
        self.tag(name, tag, line, context);
        self.tags = self.tags.saturating_add(1);
        if !ended && self.open.len() < DEEPEST {
            let of_processor =
                |value: &str| attribute(tag, value).filter(|_| name == "cpu").map(str::to_owned);
            self.open.push(Open {
                number: self.tags,
                name: cut(name, 64).to_owned(),
                numa: of_processor("numaid"),
                cpus: of_processor("affinity"),
            });
        }
        true
    }

    fn end(&mut self, context: &mut Context<'_>) {
        self.links(context);
    }
}

impl NcclXml {
    fn tag(&mut self, name: &str, tag: &str, line: &Line, context: &mut Context<'_>) {
        let number = |name: &str| attribute(tag, name).and_then(leading_number);
        match name {
            "pci" => {
                // A bridge's own link says nothing of a device.
                let class = attribute(tag, "class").unwrap_or("");
                if let (true, Some(slot)) =
                    (["0x03", "0x02"].iter().any(|c| class.starts_with(c)), attribute(tag, "busid"))
                    && let (Some(speed), Some(width)) = (number("link_speed"), number("link_width"))
                {
                    let text = format!("{slot} speed {speed} GT/s width {width}");
                    context.fact(None, "pcie.link", text, line);
                    context.fact(None, "pcie.link.speed_gts", speed, line);
                    context.fact(None, "pcie.link.width", width as i64, line);
                }
            }
            "gpu" => {
                let Some(device) = number("dev") else { return };
                let device = format!("GPU{device}");
                if let Some(processor) = self.open.iter().find(|open| open.numa.is_some()) {
                    if let Some(numa) = &processor.numa {
                        context.fact(None, "topology.numa", format!("{device} {numa}"), line);
                    }
                    if let Some(cpus) = &processor.cpus {
                        context.fact(None, "topology.cpus", format!("{device} {cpus}"), line);
                    }
                }
                let around = self.around();
                remember(&mut self.devices, Device { name: device, around, line: line.clone() });
            }
            "nvlink" => {
                if let (Some(device), Some(count)) = (self.devices.last(), number("count")) {
                    let class = attribute(tag, "tclass").unwrap_or("?");
                    let text = format!("{} {count} {class}", device.name);
                    context.fact(None, "topology.nvlink", text, line);
                }
            }
            "net" => {
                let Some(name) = attribute(tag, "name").filter(|name| name.len() < 64) else {
                    return;
                };
                let remote = ["mlx", "bnxt", "irdma", "rdma", "efa", "ib"];
                if remote.iter().any(|start| name.starts_with(start)) {
                    if let Some(gdr) = attribute(tag, "gdr") {
                        let state = if gdr == "1" { "enabled" } else { "disabled" };
                        context.fact(None, "nccl.gdr", state, line);
                    }
                    if let Some(speed) = number("speed") {
                        context.fact(None, &format!("ib.{name}.rate_gbits"), speed / 1e3, line);
                    }
                }
                let around = self.around();
                remember(
                    &mut self.cards,
                    Device { name: name.to_owned(), around, line: line.clone() },
                );
            }
            "graph" => {
                let text = |name: &str| attribute(tag, name).unwrap_or("?");
                let shape = format!(
                    "{} pattern {} channels {} intra {} inter {}",
                    text("id"),
                    text("pattern"),
                    text("nchannels"),
                    text("typeintra"),
                    text("typeinter")
                );
                context.fact(None, "nccl.graph", shape, line);
                for (name, key) in [
                    ("nchannels", "nccl.graph.channels"),
                    ("speedintra", "nccl.graph.intra_gbs"),
                    ("speedinter", "nccl.graph.inter_gbs"),
                ] {
                    if let Some(value) = number(name) {
                        context.fact(None, key, value, line);
                    }
                }
            }
            _ => {}
        }
    }

    /// Tags around the current one, outermost first, and whether each is a processor.
    fn around(&self) -> Vec<(u32, bool)> {
        self.open.iter().map(|open| (open.number, open.name == "cpu")).collect()
    }

    /// States how each GPU reaches each card, once all are known.
    fn links(&mut self, context: &mut Context<'_>) {
        let cards = std::mem::take(&mut self.cards);
        for device in std::mem::take(&mut self.devices) {
            for card in &cards {
                let link = format!("{} {} {}", device.name, card.name, distance(&device, card));
                context.fact(None, "topology.link", link, &device.line);
            }
        }
    }
}

fn remember(devices: &mut Vec<Device>, device: Device) {
    if devices.len() < MOST_DEVICES {
        devices.push(device);
    }
}

/// In NCCL's words: PIX below one switch, PXB below several, PHB by the processor, SYS from one processor to another.
fn distance(device: &Device, card: &Device) -> &'static str {
    let shared =
        device.around.iter().zip(&card.around).take_while(|(own, other)| own == other).count();
    let Some((_, processor)) = shared.checked_sub(1).map(|last| device.around[last]) else {
        return "SYS";
    };
    // Its own slot, or the card's slot and tag, are no bridge.
    let bridges = device.around.len().saturating_sub(shared + 1)
        + card.around.len().saturating_sub(shared + 2);
    match (shared, processor, bridges) {
        (1, false, _) => "SYS",
        (_, true, _) => "PHB",
        (_, false, 0) => "PIX",
        _ => "PXB",
    }
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    between(tag, &format!(" {name}=\""), "\"")
}
