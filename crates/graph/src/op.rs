//! What an operator is: data (a name and attributes) and, beside it, a definition that gives the name its meaning.
//!
//! Knows no particular operator; definitions are handed in as a list, so other crates add their own.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Attributes, DType, Graph, GraphError, OpError, Origin, Site, Strided, Tensor, Type, Value,
};

/// An operator as data: compares, hashes and serialises canonically.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Op {
    /// Name of its definition.
    pub name: String,
    /// Attributes.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
}

impl Op {
    /// The operator `name` with these attributes.
    pub fn new(name: &str, attributes: Attributes) -> Op {
        Op { name: name.to_owned(), attributes }
    }
}

/// What kind of work an operator is, for passes and budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Output element i depends on input elements i (after broadcasting) alone.
    Elementwise,
    /// Combines elements along axes.
    Reduction,
    /// Matrix products: runs on matrix units.
    Contraction,
    /// Attention: matrix products with a softmax between.
    Attention,
    /// A row-wise operator such as normalisation, softmax or a loss.
    RowWise,
    /// Reads or writes by index.
    Indexed,
    /// Expressible as a window; no work where the layout allows.
    View,
    /// Fills its output without reading.
    Source,
}

/// How an operator's output and inputs can share memory as windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// The output is a window over input 0: [`OpDefinition::window`].
    OutputOfInput,
    /// Every input is a window over the output: [`OpDefinition::slots`].
    InputsOfOutput,
}

/// Work of one evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Multiplications and additions, each counted once.
    pub flops: u64,
    /// Bytes that must be read and written at least.
    pub bytes: u64,
}

impl Cost {
    /// Reads every input once and writes every output once, with `flops_per_element` per output element.
    pub fn streaming(inputs: &[Type], outputs: &[Type], flops_per_element: u64) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(|ty| ty.bytes() as u64);
        let bytes = bytes.fold(0, u64::saturating_add);
        let elements = outputs.first().map_or(0, |ty| ty.shape.elements() as u64);
        Cost { flops: flops_per_element.saturating_mul(elements), bytes }
    }
}

/// What reference evaluation knows beyond the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluationContext {
    /// The rank that evaluates.
    pub rank: usize,
}

/// One node as its gradient rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// Values it read.
    pub inputs: &'a [Value],
    /// Values it yielded.
    pub outputs: &'a [Value],
    /// Gradient of the loss with respect to each output; `None` where the loss does not depend on it.
    pub output_gradients: &'a [Option<Value>],
}

/// Adds the nodes of a gradient rule to the graph, at the site of the differentiated node.
#[derive(Debug)]
pub struct GradientBuilder<'g> {
    graph: &'g mut Graph,
    site: Site,
}

impl<'g> GradientBuilder<'g> {
    /// A builder for the gradient of a node at `site`.
    pub fn new(graph: &'g mut Graph, site: &Site) -> GradientBuilder<'g> {
        GradientBuilder { graph, site: site.with_origin(Origin::Gradient) }
    }

    /// Where the nodes are added: the path of the differentiated node.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.graph.ty(value).clone()
    }

    /// Adds an operator with one output.
    ///
    /// # Errors
    /// As [`Graph::op1`].
    pub fn op(
        &mut self,
        name: &str,
        attributes: Attributes,
        inputs: &[Value],
    ) -> Result<Value, GraphError> {
        self.graph.op1(name, attributes, inputs, self.site.clone())
    }

    /// Adds an operator and yields all its outputs.
    ///
    /// # Errors
    /// As [`Graph::op`].
    pub fn op_many(
        &mut self,
        name: &str,
        attributes: Attributes,
        inputs: &[Value],
    ) -> Result<Vec<Value>, GraphError> {
        let id = self.graph.op(Op::new(name, attributes), inputs, self.site.clone())?;
        Ok(self.graph.outputs(id))
    }
}

/// A small case that every device must reproduce and whose gradient is checked numerically.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Attributes of the operator.
    pub attributes: Attributes,
    /// Inputs; float inputs are differentiated unless their index is in `constant`.
    pub inputs: Vec<Tensor>,
    /// Float inputs that have no gradient.
    pub constant: Vec<usize>,
}

impl Sample {
    /// A case whose float inputs are all differentiated.
    pub fn new(attributes: Attributes, inputs: Vec<Tensor>) -> Sample {
        Sample { attributes, inputs, constant: vec![] }
    }

    /// The same case with no input differentiated.
    pub fn without_gradient(mut self) -> Sample {
        self.constant = (0..self.inputs.len()).collect();
        self
    }

    /// The same case with input `index` not differentiated.
    pub fn constant(mut self, index: usize) -> Sample {
        self.constant.push(index);
        self
    }
}

/// The meaning of an operator's name: types, gradient, cost, value. One file per operator.
pub trait OpDefinition: Send + Sync {
    /// The operator's name, lower case with underscores.
    fn name(&self) -> &'static str;

    /// What kind of work it is.
    fn class(&self) -> Class;

    /// Output types.
    ///
    /// # Errors
    /// Why these inputs or attributes are refused, as a fragment that names shapes and dtypes found and expected.
    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError>;

    /// The gradient rule: one value per input, `None` where there is none. At least one entry of
    /// `call.output_gradients` is `Some`.
    ///
    /// # Errors
    /// Where a node cannot be added, or the operator has no gradient.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError>;

    /// Work of one evaluation.
    fn cost(&self, attributes: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let _ = attributes;
        Cost::streaming(inputs, outputs, 1)
    }

    /// The executable specification: slow, obvious, in `f64`, rounded to each output's dtype. Types have been inferred.
    ///
    /// # Errors
    /// Where values are impossible, such as an index beyond its table.
    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        context: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError>;

    /// Cases that cover every attribute.
    fn samples(&self) -> Vec<Sample>;

    /// Whether gradients may arrive at this output. Outputs that only save work for a gradient operator, such as
    /// statistics, say no: a loss that depends on them is an error.
    fn differentiable(&self, output: usize) -> bool {
        let _ = output;
        true
    }

    /// Whether output and inputs can share memory as windows.
    fn view(&self) -> Option<ViewKind> {
        None
    }

    /// For [`ViewKind::OutputOfInput`]: the output's window within input 0's buffer, given input 0's window; `None`
    /// where strides cannot express it and a copy is needed.
    fn window(&self, attributes: &Attributes, input: &Strided, output: &Type) -> Option<Strided> {
        let _ = (attributes, input, output);
        None
    }

    /// For [`ViewKind::InputsOfOutput`]: each input's window within the output's buffer.
    fn slots(
        &self,
        attributes: &Attributes,
        inputs: &[Type],
        output: &Strided,
    ) -> Option<Vec<Strided>> {
        let _ = (attributes, inputs, output);
        None
    }

    /// Pairs `(output, input)` that may share memory when the input is not needed afterwards.
    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[]
    }

    /// Whether this output may be added to what its window holds instead of overwriting it.
    fn may_accumulate(&self, output: usize) -> bool {
        let _ = output;
        false
    }
}

/// The operators a graph may use, by name. Cloning shares the list.
#[derive(Clone, Default)]
pub struct Registry(Arc<BTreeMap<&'static str, Arc<dyn OpDefinition>>>);

impl Registry {
    /// A registry of these definitions; of two with one name the later counts.
    pub fn new(definitions: impl IntoIterator<Item = Arc<dyn OpDefinition>>) -> Registry {
        Registry(Arc::new(definitions.into_iter().map(|d| (d.name(), d)).collect()))
    }

    /// This registry and further definitions.
    pub fn with(&self, definitions: impl IntoIterator<Item = Arc<dyn OpDefinition>>) -> Registry {
        let own = self.0.values().cloned();
        Registry::new(own.chain(definitions).collect::<Vec<_>>())
    }

    /// All definitions in name order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn OpDefinition>> {
        self.0.values()
    }

    /// The definition of this name.
    ///
    /// # Errors
    /// [`GraphError::UnknownOperator`] with the most similar name.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn OpDefinition>, GraphError> {
        self.0.get(name).ok_or_else(|| GraphError::UnknownOperator {
            name: name.to_owned(),
            nearest: nearest(name, self.0.keys().copied()),
        })
    }

    /// Output types of an operator at a site.
    ///
    /// # Errors
    /// Where the operator is unknown or refuses its inputs.
    pub fn infer(&self, op: &Op, inputs: &[Type], site: &Site) -> Result<Vec<Type>, GraphError> {
        self.get(&op.name)?.infer(&op.attributes, inputs).map_err(|source| GraphError::Operator {
            path: site.path.clone(),
            op: op.name.clone(),
            inputs: inputs.iter().map(Type::to_string).collect::<Vec<_>>().join(", "),
            source,
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// The known name with the smallest edit distance, if it is at most half the length.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let distance = |other: &str| {
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in name.bytes().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, b) in other.bytes().enumerate() {
                let substitute = diagonal + usize::from(a != b);
                diagonal = row[j + 1];
                row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
            }
        }
        row[other.len()]
    };
    known
        .map(|other| (distance(other), other))
        .min()
        .filter(|(distance, _)| *distance <= name.len().div_ceil(2))
        .map(|(_, other)| other.to_owned())
}

/// Checks that an operator got this many inputs.
///
/// # Errors
/// Says how many were found and expected.
pub fn expect_inputs(inputs: &[Type], expected: usize) -> Result<(), OpError> {
    if inputs.len() == expected {
        return Ok(());
    }
    Err(OpError::new(format!("{} inputs found, {expected} expected", inputs.len())))
}

/// Checks that a value has a float dtype.
///
/// # Errors
/// Names the value and the dtype found.
pub fn expect_float(name: &str, ty: &Type) -> Result<DType, OpError> {
    if ty.dtype.is_float() {
        return Ok(ty.dtype);
    }
    Err(OpError::new(format!("{name} is {ty}, a float dtype was expected")))
}
