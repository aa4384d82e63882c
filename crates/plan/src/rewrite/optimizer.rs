//! Updates parameters from their reduced gradients: one elementwise region per bucket, written with the optimizer's own
//! operators. The region also writes the low-precision copy; under `zero1` it works on this rank's shard, and parameters
//! or copies are gathered afterwards.
//!
//! Knows no particular optimizer and no kernel.

mod groups;
mod region;
mod scalars;

use graph::{
    Attributes, Collective, Function, Graph, Initial, Origin, Program, Site, State, StateKind,
    Type, Update, Value, names,
};

use self::scalars::Scalars;
use super::{
    Context,
    support::{GRADIENT, WORKING, cast},
};
use crate::PlanError;

pub(super) fn run(mut program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    let Some(place) = program
        .functions
        .iter()
        .position(|function| [names::STEP, names::LAST].contains(&function.name.as_str()))
    else {
        return Ok(program);
    };
    let mut function = program.functions[place].clone();
    let slots = take_gradients(&program, &mut function);
    if slots.is_empty() {
        return Ok(program);
    }
    let sharded = slots.iter().any(|slot| slot.gradient.shards > 1);
    let values: Vec<Value> = slots.iter().map(|slot| slot.value).collect();
    let scalars = scalars::add(&mut program, &mut function, &values, sharded, cx)?;
    let mut moments = vec![];
    for slot in &slots {
        moments.extend(update(&program, &mut function, slot, &scalars, cx)?);
    }
    program.states.extend(moments);
    program.states.retain(|state| {
        !(matches!(state.kind, StateKind::Gradient { .. }) && state.name.ends_with(GRADIENT))
    });
    program.functions[place] = function;
    Ok(program)
}

/// A parameter state, its reduced gradient's state, and the gradient.
struct Slot {
    parameter: State,
    gradient: State,
    value: Value,
}

/// Removes the updates of gradients and yields them: they are consumed here.
fn take_gradients(program: &Program, function: &mut Function) -> Vec<Slot> {
    let mut slots = vec![];
    function.updates.retain(|update| {
        let Some(state) = program.state(&update.state) else { return true };
        let StateKind::Gradient { of } = &state.kind else { return true };
        let Some(parameter) = program.state(of).filter(|_| state.name.ends_with(GRADIENT)) else {
            return true;
        };
        let (parameter, gradient) = (parameter.clone(), state.clone());
        slots.push(Slot { parameter, gradient, value: update.value });
        false
    });
    slots
}

/// Adds one slot's update; yields the states of its moments.
fn update(
    program: &Program,
    function: &mut Function,
    slot: &Slot,
    scalars: &Scalars,
    cx: &Context<'_>,
) -> Result<Vec<State>, PlanError> {
    let ranks = slot.gradient.shards;
    let name = &slot.parameter.name;
    let site = Site::new(name, Origin::Optimizer);
    let graph = &mut function.graph;
    let whole = graph.state(name, slot.parameter.ty.clone());
    let gathers = ranks > 1 && slot.parameter.shards == 1;
    let parameter = if gathers {
        let attributes = Attributes::new().int("ranks", ranks as i64);
        graph.op1("shard", attributes, &[whole], site.clone())?
    } else {
        whole
    };
    let moments = moments(slot, graph.ty(parameter), cx);
    let working = program.state(&format!("{name}{WORKING}"));

    let mut inputs = vec![parameter, slot.value];
    inputs.extend(moments.iter().map(|state| graph.state(&state.name, state.ty.clone())));
    inputs.extend([scalars.learning_rate, scalars.step]);
    inputs.extend(scalars.factor.into_iter().chain(scalars.skip));
    let recipe = Recipe {
        slot,
        moments: moments.len(),
        has_factor: scalars.factor.is_some(),
        has_skip: scalars.skip.is_some(),
        working,
        cx,
        site: &site,
    };
    let outputs = recipe.add(graph, &inputs)?;

    let mut write = |graph: &mut Graph, state: &str, value: Value, gather: bool| {
        let value = match gather {
            true => graph.collective(Collective::AllGather { ranks }, value, site.clone())?,
            false => value,
        };
        function.updates.push(Update { state: state.to_owned(), value });
        Ok::<(), PlanError>(())
    };
    write(graph, name, outputs[0], gathers)?;
    for (moment, &value) in moments.iter().zip(&outputs[1..]) {
        write(graph, &moment.name, value, false)?;
    }
    if let (Some(working), Some(&copy)) = (working, outputs.get(1 + moments.len())) {
        write(graph, &working.name, copy, ranks > 1)?;
    }
    Ok(moments)
}

/// One state per slot of the optimizer, laid out as the gradient is.
fn moments(slot: &Slot, part: &Type, cx: &Context<'_>) -> Vec<State> {
    let of = &slot.parameter.name;
    let moment = |suffix: &str| {
        let mut segments = slot.parameter.segments.clone();
        segments.iter_mut().for_each(|s| s.name = format!("{}#{suffix}", s.name));
        let kind = StateKind::Moment { of: of.clone(), slot: suffix.to_owned() };
        let state = State::new(&format!("{of}#{suffix}"), part.clone(), kind, Initial::Zeros);
        State { segments, shards: slot.gradient.shards, ..state }
    };
    cx.optimizer.slots().iter().map(|suffix| moment(suffix)).collect()
}

/// How one slot is updated, whatever graph it is written into.
struct Recipe<'a> {
    slot: &'a Slot,
    moments: usize,
    has_factor: bool,
    has_skip: bool,
    working: Option<&'a State>,
    cx: &'a Context<'a>,
    site: &'a Site,
}

impl Recipe<'_> {
    /// As a region where the target has kernels for such, else as plain nodes.
    fn add(&self, graph: &mut Graph, inputs: &[Value]) -> Result<Vec<Value>, PlanError> {
        let fuses = self.cx.target.patterns().iter().any(|pattern| pattern == "elementwise");
        if !fuses || graph.ty(inputs[0]).shape.rank() == 0 {
            return self.write(graph, inputs);
        }
        let mut draft = Graph::new(graph.registry());
        let own: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(i, &v)| draft.input(&i.to_string(), graph.ty(v).clone(), self.site.clone()))
            .collect();
        let outputs = self.write(&mut draft, &own)?;
        Ok(region::add(graph, &draft, inputs, &outputs, self.site))
    }

    /// New parameter, new moments, and the low-precision copy where there is one.
    fn write(&self, graph: &mut Graph, inputs: &[Value]) -> Result<Vec<Value>, PlanError> {
        let (values, scalars) = inputs.split_at(2 + self.moments);
        let (parameter, moments) = (values[0], &values[2..]);
        let dtype = graph.ty(parameter).dtype;
        let mut scalars = scalars.iter().copied();
        let mut next = |graph: &mut Graph, wanted: bool| match scalars.next().filter(|_| wanted) {
            Some(value) if graph.ty(value).dtype.is_float() => {
                cast(graph, value, dtype, self.site).map(Some)
            }
            value => Ok(value),
        };
        let learning_rate = next(graph, true)?;
        let step = next(graph, true)?;
        let factor = if self.has_factor { next(graph, true)? } else { None };
        let skip = if self.has_skip { next(graph, true)? } else { None };
        let (Some(mut learning_rate), Some(step)) = (learning_rate, step) else {
            return Err(PlanError::Pass {
                pass: "optimizer",
                message: "learning rate and step are missing".to_owned(),
            });
        };

        let mut gradient = cast(graph, values[1], dtype, self.site)?;
        let op = |graph: &mut Graph, name: &str, inputs: &[Value]| {
            graph.op1(name, Attributes::new(), inputs, self.site.clone())
        };
        if let Some(factor) = factor {
            gradient = op(graph, "mul", &[gradient, factor])?;
        }
        let hyper = groups::values(graph, self.slot_view(), dtype, self.cx, self.site)?;
        if let Some(scale) = hyper.learning_rate_scale {
            learning_rate = op(graph, "mul", &[learning_rate, scale])?;
        }
        let hyper = graph::optim::Hyper { learning_rate, weight_decay: hyper.weight_decay, step };
        let updated =
            self.cx.optimizer.update(graph, parameter, gradient, moments, &hyper, self.site)?;
        let mut outputs = vec![updated.parameter];
        outputs.extend(updated.moments);
        if let Some(skip) = skip {
            for (new, old) in outputs.iter_mut().zip([&[parameter], moments].concat()) {
                *new = op(graph, "where", &[skip, old, *new])?;
            }
        }
        if let Some(working) = self.working {
            outputs.push(cast(graph, outputs[0], working.ty.dtype, self.site)?);
        }
        Ok(outputs)
    }

    fn slot_view(&self) -> groups::View<'_> {
        groups::View { parameter: &self.slot.parameter, shards: self.slot.gradient.shards }
    }
}
