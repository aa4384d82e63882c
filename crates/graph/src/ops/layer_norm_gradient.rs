//! The gradient of layer norm with respect to x, factor and summand.
//!
//! Knows rows and the statistics that the forward part saved.

use super::{
    layer_norm::statistic,
    support::{expect_same_dtype, expect_type, normal, prelude::*, uniform},
};

/// Inputs `dy, x, gamma, mean, rstd`; outputs `dx` (type of x), `dgamma` and `dbeta` (type of gamma).
pub struct LayerNormGradient;

impl OpDefinition for LayerNormGradient {
    fn name(&self) -> &'static str {
        "layer_norm_gradient"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 5)?;
        let [dy, x, gamma, mean, rstd] =
            [&inputs[0], &inputs[1], &inputs[2], &inputs[3], &inputs[4]];
        expect_same_dtype(dy, x)?;
        expect_float("x", x)?;
        expect_float("gamma", gamma)?;
        expect_type("dy", dy, x)?;
        expect_type("gamma", gamma, &Type::new(gamma.dtype, [x.shape.last()]))?;
        expect_type("mean", mean, &statistic(x))?;
        expect_type("rstd", rstd, &statistic(x))?;
        Ok(vec![x.clone(), gamma.clone(), gamma.clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 14)
    }

    /// With `h = (x - mean) rstd` and `g = dy gamma`: `dx = rstd (g - average(g) - h average(g h))`, averages over the
    /// row; `dgamma` sums `dy h` and `dbeta` sums `dy` over rows (J. Ba, J. Kiros, G. Hinton, "Layer normalization",
    /// 2016, differentiated).
    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (ty, parameter) = (inputs[1].ty(), inputs[2].ty());
        let width = ty.shape.last();
        let (dy, x, gamma) = (inputs[0].to_f64(), inputs[1].to_f64(), inputs[2].to_f64());
        let (mut dx, mut dgamma, mut dbeta) = (vec![], vec![0.0; width], vec![0.0; width]);
        for (row, (dy, x)) in dy.chunks(width).zip(x.chunks(width)).enumerate() {
            let (mean, rstd) = (inputs[3].at(row), inputs[4].at(row));
            let h: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
            let g: Vec<f64> = dy.iter().zip(&gamma).map(|(dy, gamma)| dy * gamma).collect();
            let average_g = g.iter().sum::<f64>() / width as f64;
            let average_gh = g.iter().zip(&h).map(|(g, h)| g * h).sum::<f64>() / width as f64;
            for column in 0..width {
                dx.push(rstd * (g[column] - average_g - h[column] * average_gh));
                dgamma[column] += dy[column] * h[column];
                dbeta[column] += dy[column];
            }
        }
        Ok(vec![
            Tensor::floats(ty.clone(), dx),
            Tensor::floats(parameter.clone(), dgamma),
            Tensor::floats(parameter.clone(), dbeta),
        ])
    }

    fn samples(&self) -> Vec<Sample> {
        let statistics = |x: &Tensor| {
            let width = x.shape().last();
            let rows: Vec<(f64, f64)> = x
                .to_f64()
                .chunks(width)
                .map(|row| {
                    let mean = row.iter().sum::<f64>() / width as f64;
                    let squares = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                    (mean, 1.0 / (squares / width as f64 + 1e-5).sqrt())
                })
                .collect();
            let ty = statistic(x.ty());
            [
                Tensor::floats(ty.clone(), rows.iter().map(|row| row.0)),
                Tensor::floats(ty, rows.iter().map(|row| row.1)),
            ]
        };
        let case = |x: Tensor, dy: Tensor| {
            let [mean, rstd] = statistics(&x);
            let gamma = uniform([6], 0.5, 1.5, 1);
            Sample::new(Attributes::new(), vec![dy, x, gamma, mean, rstd]).without_gradient()
        };
        vec![
            case(normal([2, 3, 6], 2), normal([2, 3, 6], 3)),
            case(normal([70, 6], 4), normal([70, 6], 5)),
            case(normal([3, 6], 6).cast(DType::BF16), normal([3, 6], 7).cast(DType::BF16)),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (0, 1)]
    }
}
