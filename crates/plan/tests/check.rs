//! The checker against random programs: it accepts every honest plan and finds every planted fault.

mod support;

use graph::Kind;
use plan::{
    Arena, BufferId, Lane, MemoryModel, Options, Plan, StepId,
    schedule::{self, check},
};
use support::{Dice, Machine, random_program};

const PROGRAMS: u64 = 1200;

/// Planted faults by name.
#[derive(Default, Debug)]
struct Planted {
    wait: usize,
    overlap: usize,
    communication: usize,
    stride: usize,
    early: usize,
    sum: usize,
}

#[test]
fn honest_plans_are_accepted_and_every_planted_fault_is_found() {
    let mut planted = Planted::default();
    for seed in 0..PROGRAMS {
        let ranks = 1 + (seed % 3) as usize;
        let model = if seed % 2 == 0 { MemoryModel::Offsets } else { MemoryModel::Blocks };
        let target = Machine(model);
        let program = random_program(seed, ranks);
        program.verify().unwrap();
        let options = Options { ranks, overlap: seed % 5 != 0, ..Options::default() };
        let plan = schedule::run(&program, &target, &options)
            .unwrap_or_else(|error| panic!("program {seed}: {error}"));
        let mut dice = Dice::new(seed);
        let expect_fault = |plan: &Plan, what: &str, count: &mut usize| {
            *count += 1;
            let found = check(plan, &target);
            assert!(
                found.is_err(),
                "program {seed}: {what} was not found\n{:?}",
                plan.functions[0]
            );
        };
        if options.overlap {
            remove_waits(&plan, |bad| expect_fault(bad, "a removed wait", &mut planted.wait));
        }
        wrong_sums(&plan, |bad| expect_fault(bad, "a wrong sum", &mut planted.sum));
        for _ in 0..30 {
            overlap(&plan, &mut dice, |bad| expect_fault(bad, "an overlap", &mut planted.overlap));
        }
        for _ in 0..3 {
            free_at_launch(&plan, &mut dice, |bad| {
                expect_fault(
                    bad,
                    "communication memory freed at launch",
                    &mut planted.communication,
                );
            });
            wrong_stride(&plan, &mut dice, |bad| {
                expect_fault(bad, "a wrong stride", &mut planted.stride);
            });
            write_early(&plan, &mut dice, |bad| {
                expect_fault(bad, "a state written early", &mut planted.early);
            });
        }
    }
    let Planted { wait, overlap, communication, stride, early, sum } = planted;
    for (count, least) in [
        (wait, 1000),
        (overlap, 1000),
        (communication, 300),
        (stride, 1000),
        (early, 300),
        (sum, 300),
    ] {
        assert!(count >= least, "{planted:?}");
    }
}

/// Every plan that lacks one wait.
fn remove_waits(plan: &Plan, mut found: impl FnMut(&Plan)) {
    for step in 0..plan.functions[0].steps.len() {
        for wait in 0..plan.functions[0].steps[step].waits.len() {
            let mut bad = plan.clone();
            bad.functions[0].steps[step].waits.remove(wait);
            found(&bad);
        }
    }
}

/// The buffer in which a step's first output starts at the first byte, if it is of the function's own.
fn first_output(plan: &Plan, step: usize) -> Option<(graph::Value, BufferId)> {
    let function = &plan.functions[0];
    let graph = &plan.program.functions[0].graph;
    let value = graph::Value::new(function.steps[step].node, 0);
    let window = &function.windows[&value];
    let own = plan.buffer(window.buffer).function.is_some()
        && window.elements.offset == 0
        && window.elements.per_rank == 0
        && !graph.node(value.node).is_op("pack");
    own.then_some((value, window.buffer))
}

/// The last step that reads a value directly.
fn last_reader(plan: &Plan, value: graph::Value) -> Option<usize> {
    let graph = &plan.program.functions[0].graph;
    let reads = |step: &plan::Step| graph.node(step.node).inputs.contains(&value);
    plan.functions[0].steps.iter().rposition(reads)
}

/// A value's buffer moved over that of another which is read later.
fn overlap(plan: &Plan, dice: &mut Dice, mut found: impl FnMut(&Plan)) {
    let steps = plan.functions[0].steps.len();
    let (first, second) = (dice.below(steps), dice.below(steps));
    let (Some((value, held)), Some((_, moved))) =
        (first_output(plan, first), first_output(plan, second))
    else {
        return;
    };
    let read_later = last_reader(plan, value).is_some_and(|reader| reader > second);
    if first >= second || held == moved || !read_later {
        return;
    }
    let mut bad = plan.clone();
    let (arena, offset) = (bad.buffer(held).arena, bad.buffer(held).offset);
    let buffer = &mut bad.buffers[moved.0 as usize];
    (buffer.arena, buffer.offset) = (arena, offset);
    found(&bad);
}

/// What a step beside a collective writes, moved into the memory the collective works on.
fn free_at_launch(plan: &Plan, dice: &mut Dice, mut found: impl FnMut(&Plan)) {
    let steps = &plan.functions[0].steps;
    let collectives: Vec<usize> = (0..steps.len())
        .filter(|&step| matches!(steps[step].lane, Lane::Communication(_)))
        .collect();
    if collectives.is_empty() {
        return;
    }
    let collective = *dice.pick(&collectives);
    let graph = &plan.program.functions[0].graph;
    let input = graph.node(steps[collective].node).inputs[0];
    let window = &plan.functions[0].windows[&input];
    if plan.buffer(window.buffer).function.is_none() || window.elements.offset != 0 {
        return;
    }
    // Steps after the launch that nothing makes wait for its end.
    let mut known = vec![false; steps.len()];
    known[collective] = true;
    for step in collective + 1..steps.len() {
        let lane = steps[step].lane;
        let before = (0..step).rev().find(|&other| steps[other].lane == lane);
        let waits = steps[step].waits.iter().map(|wait| wait.0 as usize);
        known[step] = before.into_iter().chain(waits).any(|other| known[other]);
        let Some((_, moved)) = first_output(plan, step) else { continue };
        if known[step] || moved == window.buffer || lane == Lane::Copy {
            continue;
        }
        let mut bad = plan.clone();
        let offset = bad.buffer(window.buffer).offset;
        let buffer = &mut bad.buffers[moved.0 as usize];
        (buffer.arena, buffer.offset) = (Arena::Communication, offset);
        found(&bad);
        return;
    }
}

/// What is added overwrites, or is added elsewhere.
fn wrong_sums(plan: &Plan, mut found: impl FnMut(&Plan)) {
    for step in 0..plan.functions[0].steps.len() {
        if plan.functions[0].steps[step].accumulates.is_empty() {
            continue;
        }
        let mut bad = plan.clone();
        bad.functions[0].steps[step].accumulates.clear();
        found(&bad);
        let mut bad = plan.clone();
        let value = graph::Value::new(bad.functions[0].steps[step].node, 0);
        if let Some(window) = bad.functions[0].windows.get_mut(&value) {
            window.elements.offset += 1;
            found(&bad);
        }
    }
}

/// One stride of one window off by one.
fn wrong_stride(plan: &Plan, dice: &mut Dice, mut found: impl FnMut(&Plan)) {
    let graph = &plan.program.functions[0].graph;
    let views = ["slice", "permute", "reshape", "unpack", "shard"];
    let values: Vec<graph::Value> = graph
        .ids()
        .filter(|&id| views.contains(&graph.node(id).name()))
        .map(|id| graph::Value::new(id, 0))
        .collect();
    if values.is_empty() {
        return;
    }
    let value = *dice.pick(&values);
    let mut bad = plan.clone();
    let Some(window) = bad.functions[0].windows.get_mut(&value) else { return };
    let axis = dice.below(window.elements.strides.len());
    if window.elements.shape.0[axis] > 1 {
        window.elements.strides[axis] += 1;
        found(&bad);
    }
}

/// A reader of a state's old value moved behind the step that overwrites it.
fn write_early(plan: &Plan, dice: &mut Dice, mut found: impl FnMut(&Plan)) {
    let (function, graph) = (&plan.functions[0], &plan.program.functions[0].graph);
    let steps = &function.steps;
    let states: Vec<graph::Value> = graph
        .ids()
        .filter(|&id| matches!(graph.node(id).kind, Kind::State { .. }))
        .map(|id| graph::Value::new(id, 0))
        .collect();
    let state = *dice.pick(&states);
    let buffer = function.windows[&state].buffer;
    let writes = |step: usize| {
        let outputs = graph.outputs(steps[step].node);
        outputs.iter().any(|value| function.windows[value].buffer == buffer)
    };
    let Some(writer) = (0..steps.len()).find(|&step| writes(step)) else { return };
    let Some(reader) = (0..writer).find(|&step| {
        let inputs = graph.node(steps[step].node).inputs.iter();
        let mut inputs = inputs.filter(|value| !graph.node(value.node).is_op("pack"));
        inputs.any(|value| {
            function.windows[value].elements == function.windows[&state].elements
                && function.windows[value].buffer == buffer
        })
    }) else {
        return;
    };
    if steps[reader].lane != steps[writer].lane {
        return;
    }
    // Everything that needs the reader must come after the writer already.
    let outputs = graph.outputs(steps[reader].node);
    let needs = |step: usize| {
        let inputs = &graph.node(steps[step].node).inputs;
        let buffers = outputs.iter().map(|value| function.windows[value].buffer);
        let own: Vec<BufferId> = buffers.collect();
        steps[step].waits.contains(&StepId(reader as u32))
            || inputs.iter().any(|value| own.contains(&function.windows[value].buffer))
    };
    if (reader + 1..=writer).any(needs) {
        return;
    }
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.remove(reader);
    order.insert(writer, reader);
    let mut bad = plan.clone();
    let position = |old: StepId| {
        let new = order.iter().position(|&step| step == old.0 as usize);
        StepId(new.expect("a permutation") as u32)
    };
    bad.functions[0].steps = order
        .iter()
        .map(|&old| {
            let mut step = steps[old].clone();
            step.waits = step.waits.into_iter().map(position).collect();
            step
        })
        .collect();
    found(&bad);
}
