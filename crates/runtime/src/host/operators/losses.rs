//! cross_entropy, its gradient, and the region of both.
//!
//! Knows operand order and attributes; the loops are in `kernels::cross_entropy`.

use graph::{Attributes, Kind, OpError, Region, Type};

use super::Request;
use crate::host::{
    call::{Call, Fault, Input, Kernel, Number, Output},
    kernels::{
        cross_entropy::{BadLabel, Loss, cross_entropy, cross_entropy_gradient},
        rows::RowsMut,
    },
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    if !matches!(request.name, "cross_entropy" | "cross_entropy_gradient") {
        return Ok(None);
    }
    let logits = request.inputs.first().ok_or_else(|| OpError::new("has no logits"))?;
    let loss = loss(request.attributes, logits)?;
    Ok(Some(if request.name == "cross_entropy" {
        Box::new(CrossEntropy { loss })
    } else {
        Box::new(CrossEntropyGradient { loss })
    }))
}

fn loss(attributes: &Attributes, logits: &Type) -> Result<Loss, OpError> {
    let width = logits.shape.last();
    let given = |name: &str| attributes.get(name).is_some();
    let mut loss = Loss { ignore_index: -100, label_smoothing: 0.0, classes: width };
    if given("ignore_index") {
        loss.ignore_index = attributes.int_of("ignore_index")?;
    }
    if given("label_smoothing") {
        loss.label_smoothing = attributes.float_of("label_smoothing")?;
    }
    if given("classes") {
        loss.classes = attributes.size_of("classes")?.min(width);
    }
    Ok(loss)
}

/// The region (logits, labels, dloss) -> (loss_sum, count, dlogits[, lse]).
pub(super) fn prepare_region(region: &Region) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let body = &region.body;
    if region.name != "cross_entropy_with_gradient" {
        return Ok(None);
    }
    let inputs: Vec<_> = region.inputs().collect();
    let find = |name: &str| body.ids().find(|&id| body.node(id).is_op(name));
    let (Some(forward), Some(backward)) = (find("cross_entropy"), find("cross_entropy_gradient"))
    else {
        return Ok(None);
    };
    let (forward_node, backward_node) = (body.node(forward), body.node(backward));
    // Only where the two operators are all there is and read the region's own inputs.
    let direct = region.work().count() == 2
        && inputs.len() == 3
        && forward_node.inputs.as_slice() == &inputs[..2]
        && backward_node.inputs.first() == inputs.first()
        && backward_node.inputs.get(1) == inputs.get(1)
        && backward_node.inputs.get(3) == inputs.get(2);
    let outputs: Option<Vec<Part>> = region
        .outputs
        .iter()
        .map(|value| match (value.node == forward, value.node == backward, value.port) {
            (true, _, 0) => Some(Part::LossSum),
            (true, _, 1) => Some(Part::Count),
            (true, _, 2) => Some(Part::LogSumExp),
            (_, true, 0) => Some(Part::LogitsGradient),
            _ => None,
        })
        .collect();
    let (Some(outputs), true, Kind::Op(op)) = (outputs, direct, &forward_node.kind) else {
        return Ok(None);
    };
    let loss = loss(&op.attributes, body.ty(inputs[0]))?;
    Ok(Some(Box::new(WithGradient { loss, outputs })))
}

fn say(bad: BadLabel, loss: Loss) -> Fault {
    let classes = loss.classes;
    format!("label {} of row {} is beyond {classes} classes", bad.label, bad.row)
}

struct CrossEntropy {
    loss: Loss,
}

impl CrossEntropy {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [logits, labels] = call.inputs else { return Err("expects two inputs".to_owned()) };
        let [loss_sum, count, lse] = &mut *call.outputs else {
            return Err("expects three outputs".to_owned());
        };
        let (values, labels, workers) = (logits.real::<T>(), labels.integers(), call.workers);
        let logits = logits.as_rows(&values);
        let (sum, counted) = lse
            .write::<T, _>(|lse| cross_entropy(workers, logits, &labels, self.loss, lse))
            .map_err(|bad| say(bad, self.loss))?;
        loss_sum.set_scalar(sum);
        count.set_scalar(counted);
        Ok(())
    }
}

impl Kernel for CrossEntropy {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }
}

struct CrossEntropyGradient {
    loss: Loss,
}

impl CrossEntropyGradient {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [logits, labels, lse, dloss] = call.inputs else {
            return Err("expects four inputs".to_owned());
        };
        let (labels, lse) = (labels.integers(), lse.real::<T>());
        gradient::<T>(
            call.workers,
            self.loss,
            logits,
            &labels,
            &lse,
            dloss.scalar(),
            &mut call.outputs[0],
        )
    }
}

fn gradient<T: Number>(
    workers: &crate::host::kernels::workers::Workers,
    loss: Loss,
    logits: &Input<'_>,
    labels: &[i64],
    lse: &[T],
    dloss: f64,
    output: &mut Output<'_>,
) -> Result<(), Fault> {
    let values = logits.real::<T>();
    let rows = logits.as_rows(&values);
    output
        .write::<T, _>(|out| {
            let out = RowsMut::dense(out, rows.count, rows.width);
            cross_entropy_gradient(workers, rows, labels, lse, dloss, loss, out)
        })
        .map_err(|bad| say(bad, loss))
}

impl Kernel for CrossEntropyGradient {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    LossSum,
    Count,
    LogSumExp,
    LogitsGradient,
}

struct WithGradient {
    loss: Loss,
    outputs: Vec<Part>,
}

impl WithGradient {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [logits, labels, dloss] = call.inputs else {
            return Err("expects three inputs".to_owned());
        };
        let (values, labels) = (logits.real::<T>(), labels.integers());
        let rows = logits.as_rows(&values);
        let mut lse = vec![T::ZERO; rows.count];
        let (sum, count) = cross_entropy(call.workers, rows, &labels, self.loss, &mut lse)
            .map_err(|bad| say(bad, self.loss))?;
        for (output, part) in call.outputs.iter_mut().zip(&self.outputs) {
            match part {
                Part::LossSum => output.set_scalar(sum),
                Part::Count => output.set_scalar(count),
                Part::LogSumExp => output.write::<T, _>(|out| out.copy_from_slice(&lse)),
                Part::LogitsGradient => gradient::<T>(
                    call.workers,
                    self.loss,
                    logits,
                    &labels,
                    &lse,
                    dloss.scalar(),
                    output,
                )?,
            }
        }
        Ok(())
    }
}

impl Kernel for WithGradient {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }
}
