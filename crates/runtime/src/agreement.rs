//! All ranks compare their plans before the first step: the sequence of collectives, then everything.
//!
//! Knows no device.

use graph::{Collective, DType, Kind, Type};
use plan::Plan;
use sha2::{Digest, Sha256};

use crate::{Channel, Communicator, RuntimeError, communicator::CONTROL_LANE};

/// Checks over the control channel that every rank holds the same plan.
///
/// # Errors
/// [`RuntimeError::PlansDiffer`] with the first difference, on every rank.
pub fn agree_on_plan(plan: &Plan, communicator: &dyn Communicator) -> Result<(), RuntimeError> {
    if plan.ranks != communicator.ranks() {
        let (planned, found) = (plan.ranks, communicator.ranks());
        return Err(RuntimeError::RankCount { planned, found });
    }
    if plan.ranks == 1 {
        return Ok(());
    }
    let mut channel = communicator.channel(CONTROL_LANE)?;
    for text in [collective_lines(plan), plan_lines(plan)] {
        compare(&text, communicator.ranks(), &mut *channel)?;
    }
    Ok(())
}

/// One line per collective in the order of its lane.
fn collective_lines(plan: &Plan) -> String {
    let mut lines = vec![];
    for function in &plan.functions {
        let Some(program) = plan.program.function(&function.name) else { continue };
        for step in &function.steps {
            let node = program.graph.node(step.node);
            if let Kind::Collective(collective) = &node.kind {
                let ty = node.inputs.first().map(|&value| program.graph.ty(value).to_string());
                lines.push(format!(
                    "{}, {}: {}({}) {{{collective}}} of {}",
                    function.name,
                    step.lane,
                    collective.name(),
                    ty.unwrap_or_default(),
                    node.site.path,
                ));
            }
        }
    }
    lines.join("\n")
}

fn plan_lines(plan: &Plan) -> String {
    serde_json::to_string_pretty(plan).unwrap_or_else(|error| format!("no plan: {error}"))
}

fn compare(text: &str, ranks: usize, channel: &mut dyn Channel) -> Result<(), RuntimeError> {
    let hash = Sha256::digest(text);
    let mut heads = vec![0; ranks * 40];
    let mut own = hash.to_vec();
    own.extend((text.len() as u64).to_le_bytes());
    gather(channel, &own, ranks, &mut heads)?;
    let heads: Vec<&[u8]> = heads.chunks(40).collect();
    let Some(rank) = (1..ranks).find(|&rank| heads[rank][..32] != heads[0][..32]) else {
        return Ok(());
    };
    let length = |head: &[u8]| {
        head[32..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize)
    };
    let longest = heads.iter().map(|head| length(head)).max().unwrap_or(0);
    let mut padded = text.as_bytes().to_vec();
    padded.resize(longest, 0);
    let mut all = vec![0; ranks * longest];
    gather(channel, &padded, ranks, &mut all)?;
    let text_of = |rank: usize| {
        let start = rank * longest;
        String::from_utf8_lossy(&all[start..start + length(heads[rank])]).into_owned()
    };
    Err(RuntimeError::PlansDiffer {
        rank,
        difference: first_difference(&text_of(rank), &text_of(0)),
    })
}

fn gather(
    channel: &mut dyn Channel,
    own: &[u8],
    ranks: usize,
    all: &mut [u8],
) -> Result<(), RuntimeError> {
    let ty = Type::new(DType::U8, [own.len()]);
    let exchange = channel.exchange(Collective::AllGather { ranks }, &ty, own)?;
    exchange.write(all);
    exchange.settle();
    Ok(())
}

fn first_difference(other: &str, first: &str) -> String {
    let (mut others, mut firsts) = (other.lines(), first.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (others.next(), firsts.next()) {
            (a, b) if a == b && a.is_some() => {}
            (a, b) => {
                let show = |line: Option<&str>| line.map_or("nothing", str::trim).to_owned();
                return format!("line {number}: {} instead of {}", show(a), show(b));
            }
        }
    }
}
