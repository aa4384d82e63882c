//! Layer norm over the last axis; its statistics are outputs, for the gradient.
//!
//! Knows rows; factor and summand may have another float dtype than x.

use super::support::{expect_type, normal, prelude::*, uniform};

/// `y = (x - mean) rstd gamma + beta` per row, with `rstd = (variance + epsilon)^(-1/2)` of the biased variance.
/// Outputs `y` (dtype of x), `mean` and `rstd` (per row, accumulation dtype). Attribute `epsilon`.
pub struct LayerNorm;

impl Sym {
    /// Normalises the last axis, then scales and shifts it.
    #[track_caller]
    pub fn layer_norm_with(&self, gamma: &Sym, beta: &Sym, epsilon: f64) -> Sym {
        let attributes = Attributes::new().float("epsilon", epsilon);
        let [y, _, _] = self.apply_many("layer_norm", attributes, &[gamma, beta]);
        y
    }
}

/// The type of a row's statistic.
pub(super) fn statistic(x: &Type) -> Type {
    let outer = &x.shape.extents()[..x.shape.rank().saturating_sub(1)];
    Type::new(x.dtype.accumulator(), outer)
}

impl OpDefinition for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 3)?;
        attributes.float_of("epsilon")?;
        let x = &inputs[0];
        expect_float("x", x)?;
        expect_float("gamma", &inputs[1])?;
        if x.shape.rank() == 0 {
            return Err(OpError::new(format!("x is {x}, at least one axis was expected")));
        }
        let row = Type::new(inputs[1].dtype, [x.shape.last()]);
        expect_type("gamma", &inputs[1], &row)?;
        expect_type("beta", &inputs[2], &row)?;
        Ok(vec![x.clone(), statistic(x), statistic(x)])
    }

    /// One operator for all three: see `layer_norm_gradient`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None; 3]) };
        let (x, gamma) = (call.inputs[0], call.inputs[1]);
        let inputs = [dy, x, gamma, call.outputs[1], call.outputs[2]];
        let gradients = builder.op_many("layer_norm_gradient", Attributes::new(), &inputs)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 8)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let epsilon = attributes.float_of("epsilon")?;
        let (x, ty) = (inputs[0].to_f64(), inputs[0].ty());
        let width = ty.shape.last();
        let (mut y, mut means, mut rstds) = (vec![], vec![], vec![]);
        for row in x.chunks(width) {
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            let rstd = 1.0 / (variance + epsilon).sqrt();
            let normalised = row
                .iter()
                .enumerate()
                .map(|(column, x)| (x - mean) * rstd * inputs[1].at(column) + inputs[2].at(column));
            y.extend(normalised);
            means.push(mean);
            rstds.push(rstd);
        }
        let per_row = statistic(ty);
        Ok(vec![
            Tensor::floats(ty.clone(), y),
            Tensor::floats(per_row.clone(), means),
            Tensor::floats(per_row, rstds),
        ])
    }

    fn samples(&self) -> Vec<Sample> {
        let epsilon = |epsilon| Attributes::new().float("epsilon", epsilon);
        let parameters = || [uniform([6], 0.5, 1.5, 1), normal([6], 2)];
        let case = |x: Tensor, attributes| {
            let [gamma, beta] = parameters();
            Sample::new(attributes, vec![x, gamma, beta])
        };
        vec![
            case(normal([2, 3, 6], 3), epsilon(1e-5)),
            case(normal([4, 6], 4), epsilon(0.1)),
            case(normal([6], 5), epsilon(1e-5)),
            case(normal([3, 6], 6).cast(DType::BF16), epsilon(1e-5)).without_gradient(),
        ]
    }

    fn differentiable(&self, output: usize) -> bool {
        output == 0
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
