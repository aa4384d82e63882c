//! NCCL's own log (NCCL_DEBUG), versions 2.4 to 2.30, with any launcher's prefix and interleaved.
//!
//! Facts, each of the process `host:pid` that printed the line:
//! `nccl.version`; `nccl.env` ("NAME=VALUE"); `nccl.network` ("Socket", "IB", "AWS Libfabric"); `nccl.network.socket`
//! and `nccl.network.ib` (interfaces as listed); `nccl.network.ib.none`; `nccl.network.interface`,
//! `nccl.bootstrap.interface` and `nccl.oob.interface` ("NAME ADDRESS"); `cuda.driver_version` ("12040");
//! `nccl.network.ib.completion_status` (of a failed work request); `nccl.connect.failed` (the address);
//! `nccl.topology.nodes`, `nccl.topology.local_ranks`; `nccl.plugin` (a plugin's own line);
//! `nccl.transport` ("P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"); `nccl.gdr` ("enabled" or "disabled" with its
//! line); `nccl.p2p` (why peers are unreachable); `nccl.channels`; `nccl.affinity`; `nccl.init` ("start" or "complete");
//! `nccl.init.nranks`; `nccl.init.NAME_seconds`; `nccl.topology` (a link of the dump); `nccl.warning`; `nccl.error`
//! (the error trail); `nccl.info` (lines that rules look for by their text). Lines are quoted whole.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, between, leading_number},
};

/// The grammar.
#[derive(Debug)]
pub struct NcclLog;

/// Texts of INFO lines that matter by themselves.
const TELLING: &[&str] = &[
    "NVLS multicast support",
    "Failed to open libibverbs",
    "Could not find a path for pattern",
    "Failed to initialize NET plugin",
    "Invalid value",
    "P2P is disabled",
    "Could not enable P2P",
    "is disabled between",
    "Call to connect returned",
    "connect returned",
    "PXN Disabled",
    "DMA-BUF is available",
    "MNNVL",
];

impl Grammar for NcclLog {
    fn name(&self) -> &'static str {
        "nccl-log"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let pieces = pieces(text);
        if pieces.is_empty() {
            // Printed without a prefix, by rank 0 alone.
            let Some(version) = text.trim().strip_prefix("NCCL version ") else { return false };
            let process = (context.timeline.processes.len() == 1).then_some(0);
            context.fact_once(process, "nccl.version", version.trim(), line);
            return true;
        }
        for piece in pieces {
            let Some((head, level, message)) = split(piece) else { continue };
            let process = prefix(head).and_then(|(host, pid)| context.process(host, pid));
            if level == "WARN" {
                warning(process, message, line, context);
            } else {
                info(process, message, line, context);
            }
        }
        true
    }
}

/// The messages of a line: several where processes wrote at once.
fn pieces(text: &str) -> Vec<&str> {
    let mut starts = vec![];
    for level in ["NCCL INFO ", "NCCL WARN ", "NCCL TRACE ", "NCCL CALL "] {
        starts.extend(text.match_indices(level).map(|(at, _)| at));
    }
    starts.sort_unstable();
    if starts.len() < 2 {
        return if split(text).is_some() { vec![text] } else { vec![] };
    }
    let mut pieces = vec![];
    let mut from = 0;
    for pair in starts.windows(2) {
        // The next prefix begins at its `HOST:PID:TID`, the last such word before the level.
        let gap = &text[pair[0]..pair[1]];
        let word = gap.split_whitespace().rev().find(|word| {
            let mut parts = word.rsplitn(3, ':');
            let number = |part: Option<&str>| part.is_some_and(|p| p.parse::<i64>().is_ok());
            number(parts.next()) && number(parts.next()) && parts.next().is_some()
        });
        let Some(word) = word else { continue };
        let to = word.as_ptr() as usize - text.as_ptr() as usize;
        pieces.push(&text[from..to]);
        from = to;
    }
    pieces.push(&text[from..]);
    pieces
}

/// A warning, and what its text gives away by numbers.
fn warning(process: Option<u32>, message: &str, line: &Line, context: &mut Context<'_>) {
    context.fact(process, "nccl.warning", message, line);
    if let Some(status) = completion_status(message) {
        context.fact(process, "nccl.network.ib.completion_status", status, line);
    }
    if message.contains("onnect to ") && message.contains("failed") {
        let address = after(message, "onnect to ").and_then(|rest| rest.split(['<', ' ']).next());
        if let Some(address) = address {
            context.fact(process, "nccl.connect.failed", address, line);
        }
    }
}

/// The status of a failed work completion: `error 12`, `status=12`, `status=IBV_WC_RETRY_EXC_ERR(12)`.
fn completion_status(message: &str) -> Option<i64> {
    let rest = after(message, "Got completion ")?;
    let number = after(rest, "status=").or_else(|| after(rest, "error "))?;
    let number = match number.split_once('(') {
        Some((name, inside)) if name.starts_with("IBV_") => inside,
        _ => number,
    };
    leading_number(number).map(|status| status as i64)
}

/// Splits a line at ` NCCL INFO ` and its kin: what stands before, the level, the message.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (head, rest) = text.split_once("NCCL ")?;
    let level = ["INFO", "WARN", "TRACE", "CALL"]
        .into_iter()
        .find(|level| rest.strip_prefix(level).is_some_and(|rest| rest.starts_with(' ')))?;
    (head.is_empty() || head.ends_with(' ') || head.ends_with(':'))
        .then(|| (head, level, rest[level.len()..].trim()))
}

/// Host and pid of `[time] HOST:PID:TID [device] FILE:LINE`, whatever a launcher wrote before it.
fn prefix(head: &str) -> Option<(&str, i64)> {
    head.split_whitespace().find_map(|word| {
        let mut parts = word.rsplitn(3, ':');
        let (thread, pid, host) = (parts.next()?, parts.next()?, parts.next()?);
        thread.parse::<i64>().ok()?;
        // A launcher's tag such as `[1,3]<stdout>:` may stand directly before the host.
        let host = host.rsplit([':', '>']).next()?;
        (!host.is_empty() && host.chars().any(|c| c.is_ascii_alphabetic()))
            .then_some((host, pid.parse().ok()?))
    })
}

fn info(process: Option<u32>, message: &str, line: &Line, context: &mut Context<'_>) {
    if let Some((name, value)) = message.split_once(" set by environment to ") {
        let value = value.trim_end().trim_end_matches('.');
        context.fact_once(process, "nccl.env", &format!("{name}={value}"), line);
    } else if let Some(value) = message.strip_prefix("NCCL_IB_HCA set to ") {
        context.fact_once(process, "nccl.env", &format!("NCCL_IB_HCA={value}"), line);
    } else if let Some(version) = message.strip_prefix("NCCL version ") {
        context.fact_once(process, "nccl.version", version, line);
    } else if let Some(network) = message.strip_prefix("Using network ") {
        context.fact_once(process, "nccl.network", network, line);
    } else if let Some(rest) = message.strip_prefix("NET/Socket : Using [0]") {
        context.fact_once(process, "nccl.network.socket", &format!("[0]{rest}"), line);
        for (name, address) in interfaces(rest) {
            context.fact_once(
                process,
                "nccl.network.interface",
                &format!("{name} {address}"),
                line,
            );
        }
    } else if message.contains("NET/IB : No device found") {
        context.fact_once(process, "nccl.network.ib.none", "no device found", line);
    } else if let Some(rest) = message.strip_prefix("NET/IB : Using [0]") {
        context.fact_once(process, "nccl.network.ib", &format!("[0]{rest}"), line);
        if let Some((name, address)) = after(rest, "OOB ").and_then(interface) {
            context.fact_once(process, "nccl.oob.interface", &format!("{name} {address}"), line);
        }
    } else if let Some(rest) =
        message.strip_prefix("Bootstrap : Using ").or(message.strip_prefix("Bootstrap: Using "))
    {
        let first = rest.trim_start_matches("[0]");
        if let Some((name, address)) = interface(first) {
            context.fact_once(
                process,
                "nccl.bootstrap.interface",
                &format!("{name} {address}"),
                line,
            );
        }
    } else if let Some(version) = message.strip_prefix("cudaDriverVersion ") {
        context.fact_once(process, "cuda.driver_version", version.trim(), line);
    } else if message.starts_with("NET/OFI") || message.contains("NET/Plugin") {
        context.fact_once(process, "nccl.plugin", message, line);
    } else if message.contains("GPU Direct RDMA") || message.contains("GPUDirect RDMA") {
        let state = if message.contains("Disabled") { "disabled" } else { "enabled" };
        context.fact_once(process, "nccl.gdr", state, line);
    } else if let Some(transport) = after(message, " via ") {
        if message.starts_with("Channel") {
            context.fact_once(process, "nccl.transport", transport.trim(), line);
        }
    } else if let Some(mask) = after(message, "Setting affinity for GPU ") {
        let mask = after(mask, " to ").unwrap_or(mask);
        context.fact_once(process, "nccl.affinity", mask, line);
    } else if let Some(timings) = message.strip_prefix("Init timings") {
        init_timings(process, timings, line, context);
    } else if message.contains(" nNodes ") && message.contains(" localRanks ") {
        let number = |name: &str| after(message, name).and_then(leading_number).map(|n| n as i64);
        if let (Some(nodes), Some(local)) = (number(" nNodes "), number(" localRanks ")) {
            context.fact(process, "nccl.topology.nodes", nodes, line);
            context.fact(process, "nccl.topology.local_ranks", local, line);
        }
    } else if message.contains(" rank ") && message.contains("Init ") {
        communicator(process, message, line, context);
    } else if message.contains(" coll channels,") {
        if let Some(count) = leading_number(message) {
            context.fact(process, "nccl.channels", count as i64, line);
        }
    } else if message.starts_with("+ ") || message.starts_with("CPU/") || message.starts_with("===")
    {
        context.fact_once(process, "nccl.topology", message, line);
    } else if message.contains(" -> ") && is_trail(message) {
        context.fact_once(process, "nccl.error", message, line);
    } else if TELLING.iter().any(|text| message.contains(text)) {
        context.fact_once(process, "nccl.info", message, line);
    }
}

/// Interfaces of `eth0:10.0.0.1<0> [1]br-a:172.18.0.1<0>`, the first index cut off.
fn interfaces(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().filter_map(|word| {
        let word = word.split_once(']').map_or(word, |(_, rest)| rest);
        interface(word)
    })
}

/// Name and address of `eth0:10.0.0.1<0>`.
fn interface(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once(':')?;
    let (address, _) = rest.split_once('<')?;
    (!name.is_empty() && !name.contains(' ')).then_some((name, address))
}

/// `FILE:LINE -> CODE`, the trail an error leaves.
fn is_trail(message: &str) -> bool {
    let Some((place, code)) = message.split_once(" -> ") else { return false };
    let Some((_, number)) = place.rsplit_once(':') else { return false };
    number.trim().parse::<u32>().is_ok() && code.starts_with(|c: char| c.is_ascii_digit())
}

/// `comm 0x.. rank 3 nranks 8 cudaDev 3 .. - Init COMPLETE`.
fn communicator(process: Option<u32>, message: &str, line: &Line, context: &mut Context<'_>) {
    let number = |name: &str| after(message, name).and_then(leading_number).map(|n| n as i64);
    let state = if message.contains("Init COMPLETE") { "complete" } else { "start" };
    context.fact(process, "nccl.init", state, line);
    if let Some(ranks) = number(" nranks ").or_else(|| number(" nRanks ")) {
        context.fact(process, "nccl.init.nranks", ranks, line);
    }
    // The first communicator of a process is the whole job's; later ones are parts of it.
    if let (Some(process), Some(Ok(rank))) = (process, number(" rank ").map(u32::try_from)) {
        context.set_rank(process, rank);
    }
}

/// `- ncclCommInitRankConfig: rank 3 nranks 8 total 3.03 (kernels 1.22, alloc 0.24, ...)`.
fn init_timings(process: Option<u32>, timings: &str, line: &Line, context: &mut Context<'_>) {
    let mut state = |name: &str, value: f64| {
        context.fact(process, &format!("nccl.init.{name}_seconds"), value, line);
    };
    if let Some(total) = after(timings, " total ").and_then(leading_number) {
        state("total", total);
    }
    let parts = between(timings, "(", ")").unwrap_or("");
    for part in parts.split(',') {
        if let Some((name, value)) = part.trim().split_once(' ')
            && let Some(value) = leading_number(value)
        {
            state(name, value);
        }
    }
}
