//! Adds the collectives that make ranks compute one step together: counts, gradients, sums for reports.
//!
//! Both strategies reduce each gradient here; under `zero1` the bucket pass keeps only this rank's shard of the result.
//! Knows no buckets and no optimizer.

use graph::{
    Attributes, Collective, Function, Kind, Origin, Program, Site, StateKind, Value, names,
};

use super::{
    Context,
    support::{GRADIENT, GRADIENT_SUM, Rebuild, reduction_site},
};
use crate::{
    PlanError,
    options::{LossMean, Strategy},
};

/// Functions whose results every rank must see alike.
const REPORTING: [&str; 5] =
    [names::STEP, names::FIRST, names::MIDDLE, names::LAST, names::EVALUATE];

pub(super) fn run(mut program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    let options = cx.options;
    let impossible = |expected: &str| {
        Err(PlanError::Option {
            option: "ranks",
            found: format!("{} with strategy {:?}", options.ranks, options.strategy),
            expected: expected.to_owned(),
        })
    };
    match (options.ranks, options.strategy) {
        (0, _) => return impossible("at least 1"),
        (1, _) => return Ok(program),
        (_, Strategy::None) => return impossible("1, or strategy ddp or zero1"),
        _ => {}
    }
    for index in 0..program.functions.len() {
        let function = reduce(&program, &program.functions[index], cx)?;
        program.functions[index] = function;
    }
    Ok(program)
}

fn reduce(program: &Program, function: &Function, cx: &Context<'_>) -> Result<Function, PlanError> {
    let mut copy = Rebuild::new(function);
    for id in function.graph.ids() {
        copy.copy(id);
        let node = function.graph.node(id);
        let local = matches!(&node.kind, Kind::Input { name } if name == names::LOCAL_COUNT);
        if local && cx.options.loss_mean == LossMean::Global {
            let value = Value::new(id, 0);
            let site = reduction_site("loss");
            let global =
                copy.graph.collective(Collective::ALL_REDUCE_SUM, copy.value(value), site)?;
            copy.set(value, global);
        }
    }
    let mut function = copy.finish();
    reduce_gradients(program, &mut function, cx)?;
    if REPORTING.contains(&function.name.as_str()) {
        reduce_reports(&mut function)?;
    }
    Ok(function)
}

fn reduce_gradients(
    program: &Program,
    function: &mut Function,
    cx: &Context<'_>,
) -> Result<(), PlanError> {
    for index in 0..function.updates.len() {
        let update = function.updates[index].clone();
        let Some(state) = program.state(&update.state) else { continue };
        let StateKind::Gradient { of } = &state.kind else { continue };
        if !state.name.ends_with(GRADIENT) {
            continue;
        }
        let site = Site::new(of, Origin::Reduction);
        let reduced = function.graph.collective(Collective::ALL_REDUCE_SUM, update.value, site)?;
        function.updates[index].value = reduced;
        // Nobody reads the sum over micro-steps again, so that its memory may hold the reduced gradient.
        let sum = format!("{of}{GRADIENT_SUM}");
        if cx.options.strategy == Strategy::Ddp
            && let Some(sum) = function.updates.iter_mut().find(|update| update.state == sum)
        {
            sum.value = reduced;
        }
    }
    Ok(())
}

/// Sums the scalar results over ranks, all of them in one exchange.
fn reduce_reports(function: &mut Function) -> Result<(), PlanError> {
    let graph = &mut function.graph;
    let site = reduction_site("report");
    let reported: Vec<usize> = (0..function.outputs.len())
        .filter(|&index| {
            let ty = graph.ty(function.outputs[index].value);
            ty.shape.rank() == 0 && ty.dtype.is_float()
        })
        .collect();
    let mut dtypes: Vec<_> =
        reported.iter().map(|&i| graph.ty(function.outputs[i].value).dtype).collect();
    dtypes.sort_unstable();
    dtypes.dedup();
    for dtype in dtypes {
        let members: Vec<usize> = reported
            .iter()
            .copied()
            .filter(|&index| graph.ty(function.outputs[index].value).dtype == dtype)
            .collect();
        let values: Vec<Value> = members.iter().map(|&i| function.outputs[i].value).collect();
        let offsets: Vec<usize> = (0..values.len()).collect();
        let attributes = Attributes::new().sizes("offsets", &offsets);
        let attributes = attributes.int("total", values.len() as i64);
        let packed = graph.op1("pack", attributes, &values, site.clone())?;
        let sum = graph.collective(Collective::ALL_REDUCE_SUM, packed, site.clone())?;
        for (slot, index) in members.into_iter().enumerate() {
            let attributes = Attributes::new().int("offset", slot as i64).sizes("shape", &[]);
            function.outputs[index].value =
                graph.op1("unpack", attributes, &[sum], site.clone())?;
        }
    }
    Ok(())
}
