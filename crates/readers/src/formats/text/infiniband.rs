//! RDMA devices: `ibv_devinfo`, `ibstat`, `ibstatus`, `show_gids`, `fi_info`.
//!
//! Facts of the run: `ib.NAME.state`, `ib.NAME.link_layer`, `ib.NAME.active_mtu`, `ib.NAME.max_mtu`,
//! `ib.NAME.rate_gbits` (width times speed of a lane); `ib.gid.v2_ipv4` ("DEVICE INDEX ADDRESS", RoCE v2 with an IPv4
//! address) and `ib.gid.other`; `ib.devices` (how many); `fabric.provider`; `fabric.error`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, integer_after, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct Infiniband {
    device: Option<String>,
    width: Option<i64>,
    gids: bool,
    providers: bool,
}

impl Grammar for Infiniband {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if let Some(error) = trimmed.strip_prefix("fi_getinfo: ") {
            context.fact(None, "fabric.error", error, line);
            return true;
        }
        if let Some(provider) = trimmed.strip_prefix("provider: ") {
            context.fact_once(None, "fabric.provider", provider, line);
            self.providers = true;
            return true;
        }
        if self.providers
            && ["fabric:", "domain:", "version:", "type:", "protocol:"]
                .iter()
                .any(|k| trimmed.starts_with(k))
        {
            return true;
        }
        if trimmed.split_whitespace().next() == Some("DEV")
            && trimmed.contains("GID")
            && trimmed.contains("VER")
        {
            self.gids = true;
            return true;
        }
        if self.gids && gid(trimmed, line, context).is_some() {
            return true;
        }
        if trimmed.starts_with("n_gids_found") || (self.gids && trimmed.starts_with("---")) {
            self.gids = !trimmed.starts_with("n_gids_found");
            return true;
        }
        if trimmed.starts_with("No IB devices found") {
            context.fact(None, "ib.devices", 0, line);
            return true;
        }
        let name = trimmed.strip_prefix("hca_id:").or_else(|| trimmed.strip_prefix("CA '"));
        let name = name.or_else(|| after(trimmed, "Infiniband device '"));
        if let Some(name) = name {
            let name = name.trim().split('\'').next().unwrap_or("").to_owned();
            self.width = None;
            if !name.is_empty() && name.len() < 64 {
                self.device = Some(name);
            }
            return true;
        }
        self.device.clone().is_some_and(|device| self.property(&device, trimmed, line, context))
    }
}

impl Infiniband {
    fn property(
        &mut self,
        device: &str,
        text: &str,
        line: &Line,
        context: &mut Context<'_>,
    ) -> bool {
        let Some((name, value)) = text.split_once(':') else { return false };
        let value = value.trim();
        let key = |name: &str| format!("ib.{device}.{name}");
        match name.trim() {
            "state" | "State" => context.fact(None, &key("state"), value, line),
            "link_layer" | "Link layer" => context.fact(None, &key("link_layer"), value, line),
            "active_mtu" | "max_mtu" => {
                let Some(mtu) = leading_number(value) else { return false };
                context.fact(None, &key(name.trim()), mtu as i64, line);
            }
            "active_width" => {
                self.width = value.split('X').next().and_then(|n| n.trim().parse().ok());
            }
            "active_speed" => {
                let (Some(width), Some(speed)) = (self.width, leading_number(value)) else {
                    return true;
                };
                context.fact(None, &key("rate_gbits"), speed * width as f64, line);
            }
            "Rate" | "rate" => {
                let Some(rate) = leading_number(value) else { return false };
                context.fact(None, &key("rate_gbits"), rate, line);
            }
            other => {
                return [
                    "port",
                    "fw_ver",
                    "transport",
                    "sm_lid",
                    "phys",
                    "Physical",
                    "GUID",
                    "guid",
                    "Port",
                    "Base",
                ]
                .iter()
                .any(|known| other.contains(known));
            }
        }
        true
    }
}

/// `mlx5_0 1 3 0000:...:0a00:001f 10.0.0.31 v2 eth0`.
fn gid(text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let version = words.iter().position(|word| *word == "v1" || *word == "v2")?;
    let (device, index) = (words.first()?, words.get(2)?);
    index.parse::<i64>().ok()?;
    let address = words.get(version.checked_sub(1)?)?;
    let dotted = address.contains('.') && integer_after(address, "").is_some();
    if words[version] == "v2" && dotted {
        context.fact(None, "ib.gid.v2_ipv4", format!("{device} {index} {address}"), line);
    } else {
        context.fact(None, "ib.gid.other", format!("{device} {index} {}", words[version]), line);
    }
    Some(())
}
