//! The symbol: a value of the function being traced.
//!
//! Knows types; the methods that add operators stand beside the operators, those for overloads in `overloads`.

use crate::{
    Attributes, DType, Shape, Type, Value,
    trace::{Context, context::shown},
};

/// A value of the function being traced. Cheap to clone; stays on its thread. A poisoned symbol stands for a value
/// whose operator was refused: it is accepted everywhere, and adds nothing.
#[derive(Clone)]
pub struct Sym {
    context: Context,
    value: Option<Value>,
}

/// A number in an expression of symbols: takes the dtype of the other operand.
pub type Scalar = f64;

impl Sym {
    pub(super) fn new(context: &Context, value: Option<Value>) -> Sym {
        Sym { context: context.clone(), value }
    }

    /// The function being traced.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The value in the graph; `None` where the symbol is poisoned.
    pub fn value(&self) -> Option<Value> {
        self.value
    }

    /// Element type and shape; `None` where the symbol is poisoned.
    pub fn ty(&self) -> Option<Type> {
        self.value.map(|value| self.context.ty(value))
    }

    /// Element type; `f32` where the symbol is poisoned.
    pub fn dtype(&self) -> DType {
        self.ty().map_or(DType::F32, |ty| ty.dtype)
    }

    /// Shape; that of a scalar where the symbol is poisoned.
    pub fn shape(&self) -> Shape {
        self.ty().map_or(Shape::scalar(), |ty| ty.shape)
    }

    /// The extents, where there must be `N`. Another number is an error of the model and yields ones, as a poisoned
    /// symbol does.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        let Some(ty) = self.ty() else { return [1; N] };
        <[usize; N]>::try_from(ty.shape.0).unwrap_or_else(|found| {
            let message = format!("the shape is {}, {N} axes were expected", shown(&found));
            self.context.error(&message);
            [1; N]
        })
    }

    /// Adds an operator with one output whose first input is this symbol: for operators of other crates.
    #[track_caller]
    pub fn apply(&self, name: &str, attributes: Attributes, others: &[&Sym]) -> Sym {
        let [sym] = self.apply_many(name, attributes, others);
        sym
    }

    /// Adds an operator with `N` outputs whose first input is this symbol.
    #[track_caller]
    pub fn apply_many<const N: usize>(
        &self,
        name: &str,
        attributes: Attributes,
        others: &[&Sym],
    ) -> [Sym; N] {
        let inputs: Vec<&Sym> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.context.apply_many(name, attributes, &inputs)
    }
}
