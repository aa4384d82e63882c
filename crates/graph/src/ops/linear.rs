//! The linear layer's product: last axis of x times a weight, plus a bias.
//!
//! Knows tensors, not parameters: layers stand in `trace::layers`.

use super::support::{expect_same_dtype, expect_type, normal, output_dtype, prelude::*};

/// `y[.., O] = x[.., I] w[I, O] + bias[O]`; with `transposed` the weight is stored `[O, I]`; the bias is optional.
/// Attributes `accumulate` and `output` are dtypes; the bias has the weight's dtype.
pub struct Linear;

impl Sym {
    /// `self @ weight + bias` over the last axis; `transposed` where the weight is stored `[outputs, inputs]`.
    #[track_caller]
    pub fn linear_with(&self, weight: &Sym, bias: Option<&Sym>, transposed: bool) -> Sym {
        let attributes = flags(transposed, self.dtype());
        match bias {
            Some(bias) => self.apply("linear", attributes, &[weight, bias]),
            None => self.apply("linear", attributes, &[weight]),
        }
    }
}

fn flags(transposed: bool, dtype: DType) -> Attributes {
    Attributes::new()
        .bool("transposed", transposed)
        .dtype("accumulate", dtype.accumulator())
        .dtype("output", dtype)
}

impl OpDefinition for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn class(&self) -> Class {
        Class::Contraction
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        if inputs.len() != 3 {
            expect_inputs(inputs, 2)?;
        }
        let [x, w] = [&inputs[0], &inputs[1]];
        let dtype = expect_same_dtype(x, w)?;
        expect_float("x", x)?;
        let transposed = attributes.flag("transposed")?;
        let order = if transposed { "[outputs, inputs]" } else { "[inputs, outputs]" };
        let &[first, second] = w.shape.extents() else {
            return Err(OpError::new(format!("the weight is {w}, {order} was expected")));
        };
        let (i, o) = if transposed { (second, first) } else { (first, second) };
        if x.shape.rank() == 0 || x.shape.last() != i {
            return Err(OpError::new(format!(
                "x is {x}, a last axis of {i} was expected by the weight {order} {w}"
            )));
        }
        if let Some(bias) = inputs.get(2) {
            expect_type("the bias", bias, &Type::new(dtype, [o]))?;
        }
        let mut shape = x.shape.clone();
        shape.0[x.shape.rank() - 1] = o;
        Ok(vec![Type { dtype: output_dtype(attributes, dtype)?, shape }])
    }

    /// With Y = X W + b over rows: `dX = dY W^T`, `dW = X^T dY`, `db` the sum of dY over rows (M. Giles, "An extended
    /// collection of matrix derivative results", 2008, section 2.2.1).
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(mut dy) = call.output_gradients[0] else {
            return Ok(vec![None; call.inputs.len()]);
        };
        let (x, w) = (call.inputs[0], call.inputs[1]);
        let ty = builder.ty(x);
        let Ok(transposed) = call.attributes.flag("transposed") else {
            return Err(builder.not_differentiable("linear"));
        };
        if builder.ty(dy).dtype != ty.dtype {
            dy = builder.op("cast", Attributes::new().dtype("dtype", ty.dtype), &[dy])?;
        }
        let dx = builder.op("linear", flags(!transposed, ty.dtype), &[dy, w])?;
        let (rows, i, o) = (ty.shape.rows(), ty.shape.last(), builder.ty(dy).shape.last());
        let (x_rows, dy_rows) = (builder.reshape(x, &[rows, i])?, builder.reshape(dy, &[rows, o])?);
        let product = Attributes::new().bool("transpose_a", true).bool("transpose_b", false);
        let product = product.dtype("accumulate", ty.dtype.accumulator()).dtype("output", ty.dtype);
        let operands = if transposed { [dy_rows, x_rows] } else { [x_rows, dy_rows] };
        let dw = builder.op("matmul", product, &operands)?;
        let mut gradients = vec![Some(dx), Some(dw)];
        if call.inputs.len() == 3 {
            let sum = Attributes::new().sizes("axes", &[0]).bool("keep", false);
            let sum = sum.dtype("accumulate", ty.dtype.accumulator()).dtype("output", ty.dtype);
            gradients.push(Some(builder.op("reduce_sum", sum, &[dy_rows])?));
        }
        Ok(gradients)
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let products = inputs[0].shape.rows().saturating_mul(inputs[1].shape.elements());
        let flops = (products as u64).saturating_mul(2);
        Cost { flops, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let output = self.infer(attributes, &types)?.remove(0);
        let transposed = attributes.flag("transposed")?;
        let (x, w) = (inputs[0].to_f64(), inputs[1].to_f64());
        let (i, o) = (types[0].shape.last(), output.shape.last());
        let element = |index: usize| {
            let (row, column) = (index / o, index % o);
            let weight = |k: usize| if transposed { w[column * i + k] } else { w[k * o + column] };
            let product: f64 = (0..i).map(|k| x[row * i + k] * weight(k)).sum();
            product + inputs.get(2).map_or(0.0, |bias| bias.at(column))
        };
        let elements = output.shape.elements();
        Ok(vec![Tensor::floats(output, (0..elements).map(element))])
    }

    fn samples(&self) -> Vec<Sample> {
        let mut samples = vec![];
        for transposed in [false, true] {
            let w = if transposed { normal([5, 4], 1) } else { normal([4, 5], 1) };
            let attributes = || flags(transposed, DType::F32);
            samples.push(Sample::new(
                attributes(),
                vec![normal([2, 3, 4], 2), w.clone(), normal([5], 3)],
            ));
            samples.push(Sample::new(attributes(), vec![normal([6, 4], 4), w.clone()]));
            samples
                .push(Sample::new(attributes(), vec![normal([4], 5), w.clone(), normal([5], 6)]));
            let low = |tensor: Tensor| tensor.cast(DType::BF16);
            let inputs = vec![low(normal([3, 4], 7)), low(w), low(normal([5], 8))];
            samples.push(Sample::new(flags(transposed, DType::BF16), inputs).without_gradient());
        }
        samples
    }

    fn may_accumulate(&self, _: usize) -> bool {
        true
    }
}
