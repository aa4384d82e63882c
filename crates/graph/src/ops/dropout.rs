//! Dropout whose mask is a function of seed, step, site, global sample and element.
//!
//! Knows the random bits of `random`; not how many ranks or micro-steps share the batch.

use super::support::{ints, normal, prelude::*};
use crate::{names, random};

/// Inputs `x [samples, ..]`, `key [2]` (i64: seed, step) and `first_sample []` (i64: global position of sample 0).
/// Attributes `probability` (of dropping, in [0, 1)) and `site`. An element is kept where the bits of its key are at
/// least the threshold of the probability, and is then multiplied by `1 / (1 - probability)` in the accumulation dtype.
pub struct Dropout;

impl Sym {
    /// Drops elements while training; the symbol itself otherwise. The site is the module path and the number of the
    /// call in it.
    #[track_caller]
    pub fn dropout(&self, probability: f64) -> Sym {
        let context = self.context();
        if !context.training() || probability == 0.0 {
            return self.clone();
        }
        let key = context.random_key();
        let first_sample = context.scalar(names::FIRST_SAMPLE, DType::I64);
        let attributes = Attributes::new().float("probability", probability);
        self.apply("dropout", attributes.int("site", context.random_site()), &[&key, &first_sample])
    }
}

impl OpDefinition for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 3)?;
        let x = &inputs[0];
        expect_float("x", x)?;
        if x.shape.rank() == 0 {
            return Err(OpError::new(format!("x is {x}, an axis of samples was expected")));
        }
        super::support::expect_type("the key", &inputs[1], &Type::new(DType::I64, [2]))?;
        super::support::expect_type("first_sample", &inputs[2], &Type::scalar(DType::I64))?;
        attributes.int_of("site")?;
        let probability = attributes.float_of("probability")?;
        if !(0.0..1.0).contains(&probability) {
            return Err(OpError::new(format!(
                "probability is {probability}, at least 0 and below 1 was expected"
            )));
        }
        Ok(vec![x.clone()])
    }

    /// `dx` is the dropout of `dy` with the same mask.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None; 3]) };
        let inputs = [dy, call.inputs[1], call.inputs[2]];
        let dx = builder.op("dropout", call.attributes.clone(), &inputs)?;
        Ok(vec![Some(dx), None, None])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 12)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (x, ty) = (&inputs[0], inputs[0].ty());
        let probability = attributes.float_of("probability")?;
        let threshold = random::keep_threshold(probability);
        let accumulator = ty.dtype.accumulator();
        let scale = accumulator.round(1.0 / (1.0 - probability));
        let per_sample = ty.shape.extents()[1..].iter().product::<usize>().max(1);
        let (seed, step) = (inputs[1].int_at(0) as u64, inputs[1].int_at(1) as u64);
        let site = attributes.int_of("site")? as u64;
        let value = |index: usize| {
            let sample = inputs[2].int_at(0) as u64 + (index / per_sample) as u64;
            let key = random::sample_key(seed, step, site, sample);
            let kept = key.keeps((index % per_sample) as u32, threshold);
            if kept { accumulator.round(x.at(index) * scale) } else { 0.0 }
        };
        Ok(vec![Tensor::floats(ty.clone(), (0..ty.shape.elements()).map(value))])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |x: Tensor, probability: f64, site: i64, first: i64| {
            let attributes = Attributes::new().float("probability", probability).int("site", site);
            let key = ints(DType::I64, [2], &[1234, 7]);
            Sample::new(attributes, vec![x, key, ints(DType::I64, [], &[first])])
        };
        vec![
            case(normal([3, 4, 5], 1), 0.1, 42, 0),
            case(normal([4, 9], 2), 0.5, -3, 1_000_000),
            case(normal([6], 3), 0.0, 1, 2),
            case(normal([2, 33], 4).cast(DType::BF16), 0.3, 5, 2).without_gradient(),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
