//! Functions of truth values: a row each. No gradient.
//!
//! Knows bool tensors only.

use super::support::{broadcast_ints, broadcast_shape, ints, prelude::*};

/// A function of one or two truth values.
pub struct Logical {
    name: &'static str,
    operands: usize,
    /// The value for operands as 0 or 1; of one operand `a`, `b` equals `a`.
    value: fn(i64, i64) -> i64,
}

/// Both.
pub const AND: Logical = Logical { name: "logical_and", operands: 2, value: |a, b| a & b };
/// At least one.
pub const OR: Logical = Logical { name: "logical_or", operands: 2, value: |a, b| a | b };
/// Not.
pub const NOT: Logical = Logical { name: "logical_not", operands: 1, value: |a, _| 1 - a };

impl OpDefinition for Logical {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, self.operands)?;
        if let Some(ty) = inputs.iter().find(|ty| ty.dtype != DType::Bool) {
            return Err(OpError::new(format!("an operand is {ty}, bool was expected")));
        }
        let shape = broadcast_shape(&inputs[0], &inputs[self.operands - 1])?;
        Ok(vec![Type { dtype: DType::Bool, shape }])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None; self.operands])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let ty = self.infer(attributes, &types)?.remove(0);
        let a = broadcast_ints(&inputs[0], &ty.shape);
        let b = broadcast_ints(&inputs[self.operands - 1], &ty.shape);
        Ok(vec![Tensor::ints(ty, a.into_iter().zip(b).map(|(a, b)| (self.value)(a, b)))])
    }

    fn samples(&self) -> Vec<Sample> {
        let a = ints(DType::Bool, [2, 2], &[0, 0, 1, 1]);
        let same = ints(DType::Bool, [2, 2], &[0, 1, 0, 1]);
        let wide = ints(DType::Bool, [2], &[0, 1]);
        let case = |b: Tensor| {
            let operands = [a.clone(), b].into_iter().take(self.operands);
            Sample::new(Attributes::new(), operands.collect())
        };
        vec![case(same), case(wide)]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        if self.operands == 2 { &[(0, 0), (0, 1)] } else { &[(0, 0)] }
    }
}

impl Sym {
    /// Whether both are true.
    #[track_caller]
    pub fn logical_and(&self, other: &Sym) -> Sym {
        self.apply(AND.name, Attributes::new(), &[other])
    }

    /// Whether at least one is true.
    #[track_caller]
    pub fn logical_or(&self, other: &Sym) -> Sym {
        self.apply(OR.name, Attributes::new(), &[other])
    }

    /// Whether it is false.
    #[track_caller]
    pub fn logical_not(&self) -> Sym {
        self.apply(NOT.name, Attributes::new(), &[])
    }
}
