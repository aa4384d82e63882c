//! Comparisons of two tensors under NumPy's broadcasting rule: a row each. The result is bool and has no gradient.
//!
//! Knows two tensors of one dtype.

use super::support::{
    broadcast_ints, broadcast_shape, broadcast_values, expect_same_dtype, ints, normal, prelude::*,
};

/// A comparison; false where an operand is NaN.
pub struct Comparison {
    name: &'static str,
    floats: fn(f64, f64) -> bool,
    integers: fn(i64, i64) -> bool,
}

/// `a = b`
pub const EQUAL: Comparison =
    Comparison { name: "equal", floats: |a, b| a == b, integers: |a, b| a == b };
/// `a < b`
pub const LESS: Comparison =
    Comparison { name: "less", floats: |a, b| a < b, integers: |a, b| a < b };
/// `a <= b`
pub const LESS_EQUAL: Comparison =
    Comparison { name: "less_equal", floats: |a, b| a <= b, integers: |a, b| a <= b };
/// `a > b`
pub const GREATER: Comparison =
    Comparison { name: "greater", floats: |a, b| a > b, integers: |a, b| a > b };

impl OpDefinition for Comparison {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        expect_same_dtype(&inputs[0], &inputs[1])?;
        Ok(vec![Type { dtype: DType::Bool, shape: broadcast_shape(&inputs[0], &inputs[1])? }])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None, None])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let [a, b] = [&inputs[0], &inputs[1]];
        let ty = Type { dtype: DType::Bool, shape: broadcast_shape(a.ty(), b.ty())? };
        let truth: Vec<bool> = if a.dtype().is_float() {
            let (a, b) = (broadcast_values(a, &ty.shape), broadcast_values(b, &ty.shape));
            a.into_iter().zip(b).map(|(a, b)| (self.floats)(a, b)).collect()
        } else {
            let (a, b) = (broadcast_ints(a, &ty.shape), broadcast_ints(b, &ty.shape));
            a.into_iter().zip(b).map(|(a, b)| (self.integers)(a, b)).collect()
        };
        Ok(vec![Tensor::ints(ty, truth.into_iter().map(i64::from))])
    }

    fn samples(&self) -> Vec<Sample> {
        let none = Attributes::new;
        vec![
            Sample::new(none(), vec![normal([3, 4], 1), normal([4], 2)]).without_gradient(),
            Sample::new(none(), vec![normal([3], 1), normal([3], 1)]).without_gradient(),
            Sample::new(
                none(),
                vec![ints(DType::I32, [4], &[1, 2, 3, 2]), ints(DType::I32, [], &[2])],
            ),
        ]
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $row:ident;)*) => {
        impl Sym {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $method(&self, other: &Sym) -> Sym {
                    self.apply($row.name, Attributes::new(), &[other])
                }
            )*
        }
    };
}

methods! {
    /// Whether each pair of elements is equal.
    equal EQUAL;
    /// Whether each element is less than the other.
    less LESS;
    /// Whether each element is less than or equal to the other.
    less_equal LESS_EQUAL;
    /// Whether each element is greater than the other.
    greater GREATER;
}
