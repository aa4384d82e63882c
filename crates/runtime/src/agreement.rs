//! All ranks compare their plans before the first step by two hashes: the sequence of collectives, the whole plan.
//!
//! Knows no device; what differs is said by the plan itself.

use graph::{Collective, DType, Registry, Type};
use plan::Plan;

use crate::{Channel, Communicator, RuntimeError, communicator::CONTROL_LANE};

/// Checks over the control channel that every rank holds the same plan.
///
/// # Errors
/// [`RuntimeError::PlansDiffer`] with the first difference, on every rank.
pub fn agree_on_plan(plan: &Plan, communicator: &dyn Communicator) -> Result<(), RuntimeError> {
    let ranks = communicator.ranks();
    if plan.ranks != ranks {
        return Err(RuntimeError::RankCount { planned: plan.ranks, found: ranks });
    }
    if ranks == 1 {
        return Ok(());
    }
    let malformed = |error: plan::PlanError| RuntimeError::Plan {
        path: "plan".to_owned(),
        what: error.to_string(),
    };
    let json = plan.to_json().map_err(malformed)?;
    let mut head = plan.collective_hash().into_bytes();
    head.extend(plan.hash().map_err(malformed)?.bytes());
    head.extend((json.len() as u64).to_le_bytes());
    let mut channel = communicator.channel(CONTROL_LANE)?;
    let heads = gather(&mut *channel, &head, ranks)?;
    let hashes = head.len() - 8;
    let Some(rank) = (1..ranks).find(|&rank| heads[rank][..hashes] != heads[0][..hashes]) else {
        return Ok(());
    };
    let length = |head: &[u8]| head[hashes..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let lengths: Vec<usize> = heads.iter().map(|head| length(head) as usize).collect();
    let mut text = json.into_bytes();
    text.resize(lengths.iter().copied().max().unwrap_or(0), 0);
    let texts = gather(&mut *channel, &text, ranks)?;
    let read = |rank: usize| {
        let text = String::from_utf8_lossy(&texts[rank][..lengths[rank]]);
        Plan::from_json(&text, plan_registry(plan)).map_err(malformed)
    };
    let difference = read(rank)?.first_difference(&read(0)?);
    let difference = difference.unwrap_or_else(|| "equal texts with other hashes".to_owned());
    Err(RuntimeError::PlansDiffer { rank, difference })
}

fn plan_registry(plan: &Plan) -> &Registry {
    static EMPTY: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
    let first = plan.program.functions.first();
    first.map_or_else(|| EMPTY.get_or_init(Registry::default), |f| f.graph.registry())
}

/// Every rank's bytes, all of one length, in rank order.
fn gather(
    channel: &mut dyn Channel,
    own: &[u8],
    ranks: usize,
) -> Result<Vec<Vec<u8>>, RuntimeError> {
    let ty = Type::new(DType::U8, [own.len()]);
    let exchange = channel.exchange(Collective::AllGather { ranks }, &ty, own)?;
    let mut all = vec![0; ranks * own.len()];
    exchange.write(&mut all);
    exchange.settle();
    Ok(all.chunks(own.len().max(1)).map(<[u8]>::to_vec).collect())
}
