//! Cross-entropy of logits against integer labels: the sum over counted rows, and their number.
//!
//! Knows rows; the mean is the training step's matter, because its denominator spans ranks and micro-steps.

use super::support::{expect_index, ints, normal, prelude::*};

/// Inputs `logits [.., V]`, `labels [..]`; outputs `loss_sum`, `count` (scalars) and `lse [..]` (log of the sum of
/// exponentials), all in the accumulation dtype.
///
/// Attributes: `ignore_index` (rows with this label do not count; default -100), `label_smoothing` (s below; default 0),
/// `classes` (C below; further columns are padding and count as minus infinity; default V). A counted row with label t
/// costs `(1 - s) (lse - x_t) + s/C sum_c (lse - x_c)`, as `torch.nn.functional.cross_entropy`.
pub struct CrossEntropy;

/// The attributes with their defaults.
pub(super) struct Options {
    pub(super) ignore_index: i64,
    pub(super) smoothing: f64,
    pub(super) classes: usize,
}

pub(super) fn options(attributes: &Attributes, columns: usize) -> Result<Options, OpError> {
    let given = |name: &str| attributes.get(name).is_some();
    let ignore_index =
        if given("ignore_index") { attributes.int_of("ignore_index")? } else { -100 };
    let smoothing =
        if given("label_smoothing") { attributes.float_of("label_smoothing")? } else { 0.0 };
    let classes = if given("classes") { attributes.size_of("classes")? } else { columns };
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(OpError::new(format!("label_smoothing is {smoothing}, 0 to 1 was expected")));
    }
    if classes == 0 || classes > columns {
        return Err(OpError::new(format!("classes is {classes}, 1 to {columns} was expected")));
    }
    Ok(Options { ignore_index, smoothing, classes })
}

/// The label of each row: `None` where it does not count.
pub(super) fn counted(labels: &Tensor, options: &Options) -> Result<Vec<Option<usize>>, OpError> {
    let label = |(row, label): (usize, i64)| {
        if label == options.ignore_index {
            return Ok(None);
        }
        usize::try_from(label).ok().filter(|&label| label < options.classes).map(Some).ok_or_else(
            || {
                OpError::new(format!(
                    "label {label} at row {row}, there are {} classes",
                    options.classes
                ))
            },
        )
    };
    labels.to_i64().into_iter().enumerate().map(label).collect()
}

/// Checks logits and labels.
pub(super) fn expect_rows(logits: &Type, labels: &Type) -> Result<(), OpError> {
    expect_float("logits", logits)?;
    expect_index("labels", labels)?;
    let outer = &logits.shape.extents()[..logits.shape.rank().saturating_sub(1)];
    if logits.shape.rank() == 0 || outer != labels.shape.extents() {
        return Err(OpError::new(format!(
            "logits are {logits}, labels {labels}: one label per row was expected"
        )));
    }
    Ok(())
}

impl Sym {
    /// The sum of the cross-entropy over rows whose label is not `ignore_index`, and the number of those rows.
    #[track_caller]
    pub fn cross_entropy(
        &self,
        labels: &Sym,
        ignore_index: i64,
        label_smoothing: f64,
    ) -> (Sym, Sym) {
        let attributes = Attributes::new()
            .int("ignore_index", ignore_index)
            .float("label_smoothing", label_smoothing)
            .int("classes", self.shape().last() as i64);
        let [sum, count, _] = self.apply_many("cross_entropy", attributes, &[labels]);
        (sum, count)
    }
}

impl OpDefinition for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let [logits, labels] = [&inputs[0], &inputs[1]];
        expect_rows(logits, labels)?;
        options(attributes, logits.shape.last())?;
        let scalar = Type::scalar(logits.dtype.accumulator());
        Ok(vec![scalar.clone(), scalar.clone(), scalar.with_shape(labels.shape.clone())])
    }

    /// See `cross_entropy_gradient`; the count is constant.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dloss) = call.output_gradients[0] else { return Ok(vec![None, None]) };
        let inputs = [call.inputs[0], call.inputs[1], call.outputs[2], dloss];
        let dlogits = builder.op("cross_entropy_gradient", call.attributes.clone(), &inputs)?;
        Ok(vec![Some(dlogits), None])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let flops = (inputs[0].shape.elements() as u64).saturating_mul(10);
        Cost { flops, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let columns = inputs[0].shape().last();
        let options = options(attributes, columns)?;
        let labels = counted(&inputs[1], &options)?;
        let logits = inputs[0].to_f64();
        let (mut sum, mut count, mut all_lse) = (0.0, 0.0, vec![]);
        for (row, label) in logits.chunks(columns).zip(labels) {
            let row = &row[..options.classes];
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
            all_lse.push(lse);
            if let Some(label) = label {
                let spread = row.iter().map(|x| lse - x).sum::<f64>() / options.classes as f64;
                sum += (1.0 - options.smoothing) * (lse - row[label]) + options.smoothing * spread;
                count += 1.0;
            }
        }
        let scalar = Type::scalar(inputs[0].dtype().accumulator());
        Ok(vec![
            Tensor::floats(scalar.clone(), [sum]),
            Tensor::floats(scalar.clone(), [count]),
            Tensor::floats(scalar.with_shape(inputs[1].shape().clone()), all_lse),
        ])
    }

    fn samples(&self) -> Vec<Sample> {
        samples()
            .into_iter()
            .map(|(attributes, logits, labels)| {
                let low = logits.dtype() != DType::F32;
                let sample = Sample::new(attributes, vec![logits, labels]);
                if low { sample.without_gradient() } else { sample }
            })
            .collect()
    }

    fn differentiable(&self, output: usize) -> bool {
        output == 0
    }
}

/// Attributes, logits and labels of samples, for the loss and for its gradient.
pub(super) fn samples() -> Vec<(Attributes, Tensor, Tensor)> {
    let base = || Attributes::new().int("ignore_index", -100);
    let smooth = |share| base().float("label_smoothing", share);
    vec![
        (Attributes::new(), normal([4, 7], 1), ints(DType::I64, [4], &[0, 6, 3, 3])),
        (smooth(0.0), normal([2, 3, 7], 2), ints(DType::I32, [2, 3], &[0, -100, 6, 2, -100, 5])),
        (smooth(0.1), normal([4, 7], 3), ints(DType::I64, [4], &[1, -100, 6, 0])),
        (smooth(0.2).int("classes", 5), normal([3, 8], 4), ints(DType::I32, [3], &[4, 0, 2])),
        (base().int("ignore_index", 2), normal([3, 4], 5), ints(DType::I32, [3], &[2, 0, 2])),
        (smooth(0.1), normal([3, 5], 6).cast(DType::BF16), ints(DType::I32, [3], &[4, 0, 2])),
    ]
}
