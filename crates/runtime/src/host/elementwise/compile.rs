//! From a node or a region's body to instructions on registers.
//!
//! Knows the names and attributes of elementwise operators; not how their loops look.

use std::collections::BTreeMap;

use graph::{Attributes, DType, Graph, Kind, Node, OpError, Region, Type, Value};

use super::{
    Elementwise,
    functions::{Binary, Compare, Function, Unary},
};

/// One operator on one block.
#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) function: Function,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    /// To which the result is rounded.
    pub(super) dtype: DType,
}

/// Instructions in order, and which registers hold what.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// Dtype of each register.
    pub(super) registers: Vec<DType>,
    /// Register of each input.
    pub(super) inputs: Vec<usize>,
    /// Registers that hold one number.
    pub(super) constants: Vec<(usize, f64)>,
    pub(super) instructions: Vec<Instruction>,
    /// Register of each output.
    pub(super) outputs: Vec<usize>,
}

impl Program {
    fn register(&mut self, dtype: DType) -> usize {
        self.registers.push(dtype);
        self.registers.len() - 1
    }
}

/// An elementwise operator as a program, or `None` where it is none.
///
/// # Errors
/// Where an attribute is missing.
pub fn compile_node(node: &Node, inputs: &[Type]) -> Result<Option<Elementwise>, OpError> {
    let Kind::Op(op) = &node.kind else { return Ok(None) };
    let dtypes: Vec<DType> = inputs.iter().map(|ty| ty.dtype).collect();
    let [output] = node.outputs.as_slice() else { return Ok(None) };
    let Some(function) = function(&op.name, &op.attributes, &dtypes, output)? else {
        return Ok(None);
    };
    let mut program = Program::default();
    program.inputs = dtypes.iter().map(|&dtype| program.register(dtype)).collect();
    let register = program.register(output.dtype);
    let inputs = program.inputs.clone();
    program.instructions.push(Instruction {
        function,
        inputs,
        output: register,
        dtype: output.dtype,
    });
    program.outputs = vec![register];
    Ok(Some(Elementwise { program }))
}

/// A region's body as a program, or `None` where it holds anything else than elementwise operators.
///
/// # Errors
/// Where an attribute is missing.
pub fn compile_region(region: &Region) -> Result<Option<Elementwise>, OpError> {
    let body: &Graph = &region.body;
    let mut program = Program::default();
    let mut registers: BTreeMap<Value, usize> = BTreeMap::new();
    for id in body.ids() {
        let node = body.node(id);
        let value = Value::new(id, 0);
        let [ty] = node.outputs.as_slice() else { return Ok(None) };
        let register = match &node.kind {
            Kind::Input { .. } => {
                let register = program.register(ty.dtype);
                program.inputs.push(register);
                register
            }
            Kind::Op(op) if op.name == "constant" => {
                let register = program.register(ty.dtype);
                let number = ty.dtype.round(op.attributes.float_of("value")?);
                program.constants.push((register, number));
                register
            }
            Kind::Op(op) => {
                let dtypes: Vec<DType> = node.inputs.iter().map(|&v| body.ty(v).dtype).collect();
                let Some(function) = function(&op.name, &op.attributes, &dtypes, ty)? else {
                    return Ok(None);
                };
                let register = program.register(ty.dtype);
                let inputs = node.inputs.iter().map(|v| registers.get(v).copied()).collect();
                let Some(inputs) = inputs else { return Ok(None) };
                let instruction =
                    Instruction { function, inputs, output: register, dtype: ty.dtype };
                program.instructions.push(instruction);
                register
            }
            _ => return Ok(None),
        };
        registers.insert(value, register);
    }
    let outputs = region.outputs.iter().map(|value| registers.get(value).copied()).collect();
    let Some(outputs) = outputs else { return Ok(None) };
    program.outputs = outputs;
    Ok(Some(Elementwise { program }))
}

fn function(
    name: &str,
    attributes: &Attributes,
    inputs: &[DType],
    output: &Type,
) -> Result<Option<Function>, OpError> {
    let unary = |unary| Some(Function::Unary(unary));
    let binary = |binary| Some(Function::Binary(binary));
    let compare = |compare| Some(Function::Compare(compare));
    Ok(match name {
        "neg" => unary(Unary::Neg),
        "exp" => unary(Unary::Exp),
        "log" => unary(Unary::Log),
        "sqrt" => unary(Unary::Sqrt),
        "rsqrt" => unary(Unary::Rsqrt),
        "tanh" => unary(Unary::Tanh),
        "sigmoid" => unary(Unary::Sigmoid),
        "abs" => unary(Unary::Abs),
        "square" => unary(Unary::Square),
        "relu" => unary(Unary::Relu),
        "power" => unary(Unary::Power(attributes.float_of("exponent")?)),
        "gelu" => unary(if is_erf(attributes)? { Unary::GeluErf } else { Unary::GeluTanh }),
        "gelu_gradient" => binary(if is_erf(attributes)? {
            Binary::GeluErfGradient
        } else {
            Binary::GeluTanhGradient
        }),
        "add" => binary(Binary::Add),
        "sub" => binary(Binary::Sub),
        "mul" => binary(Binary::Mul),
        "div" => binary(Binary::Div),
        "maximum" => binary(Binary::Maximum),
        "minimum" => binary(Binary::Minimum),
        "equal" => compare(Compare::Equal),
        "less" => compare(Compare::Less),
        "less_equal" => compare(Compare::LessEqual),
        "greater" => compare(Compare::Greater),
        "logical_and" => Some(Function::And),
        "logical_or" => Some(Function::Or),
        "logical_not" => Some(Function::Not),
        "is_finite" => Some(Function::IsFinite),
        "where" => Some(Function::Where),
        "cast" => Some(Function::Cast),
        "copy" | "stop_gradient" | "broadcast_to" => Some(Function::Copy),
        "accumulate" if output.dtype.is_float() => {
            let default = if output.dtype == DType::F64 { DType::F64 } else { DType::F32 };
            Some(Function::Accumulate(attributes.dtype_or("accumulate", default)?))
        }
        "segment_fill" => {
            let ranks = attributes.get("ranks").map_or(Ok(1), |_| attributes.size_of("ranks"))?;
            Some(Function::SegmentFill {
                starts: attributes.sizes_of("starts")?,
                values: attributes.floats_of("values")?,
                per_rank: if ranks > 1 { output.shape.elements() } else { 0 },
            })
        }
        _ => None,
    }
    .filter(|_| inputs.len() <= 64))
}

fn is_erf(attributes: &Attributes) -> Result<bool, OpError> {
    match attributes.text_of("form")? {
        "erf" => Ok(true),
        "tanh" => Ok(false),
        other => Err(OpError::new(format!("form is {other:?}, \"erf\" or \"tanh\" was expected"))),
    }
}
