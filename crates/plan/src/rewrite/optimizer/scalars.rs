//! The scalars of an update, all of them on the device: step number, norm and clipping factor, not-finite flag, loss scale.
//!
//! The flag and the norm are taken from the reduced gradient, so all ranks agree; where ranks hold shards of it, one
//! exchange of two numbers makes them agree. Knows no parameter.

use graph::{
    Attributes, Collective, DType, Function, FunctionInput, FunctionOutput, Graph, GraphError,
    InputKind, Origin, Program, Site, Type, Update, Value, names,
};

use crate::{
    PlanError,
    rewrite::{Context, autodiff::scalar_state, support::constant},
};

/// What every bucket's update reads.
pub(super) struct Scalars {
    pub(super) learning_rate: Value,
    /// Number of this update, counted from 1.
    pub(super) step: Value,
    /// What every gradient is multiplied by; `None` for 1.
    pub(super) factor: Option<Value>,
    /// Whether this update leaves all states as they were.
    pub(super) skip: Option<Value>,
}

/// PyTorch's `clip_grad_norm_` adds this to the norm before dividing.
const CLIP_EPSILON: f64 = 1e-6;

/// Adds the scalars, their states' updates and the outputs that report them.
pub(super) fn add(
    program: &mut Program,
    function: &mut Function,
    gradients: &[Value],
    sharded: bool,
    cx: &Context<'_>,
) -> Result<Scalars, PlanError> {
    let options = cx.options;
    if let Some(clip) = options.clip_norm.filter(|&clip| !(clip > 0.0 && clip.is_finite())) {
        let (found, expected) = (clip.to_string(), "a positive number".to_owned());
        return Err(PlanError::Option { option: "clip_norm", found, expected });
    }
    let mut nodes = Nodes { function, site: Site::new("optimizer", Origin::Optimizer) };
    let learning_rate = nodes.input(names::LEARNING_RATE);

    let scaled = options.loss_scale.is_some();
    let skips = scaled || options.skip_not_finite;
    let statistics = nodes.statistics(gradients, options.clip_norm.is_some(), skips, sharded)?;

    let scale = scaled.then(|| nodes.state(names::LOSS_SCALE, DType::F32));
    let mut factor = match scale {
        Some(scale) => {
            let one = nodes.constant(1.0, DType::F32)?;
            Some(nodes.op("div", &[one, scale])?)
        }
        None => None,
    };
    if let (Some(sum), Some(clip)) = (statistics.sum_of_squares, options.clip_norm) {
        let mut norm = nodes.op("sqrt", &[sum])?;
        if let Some(unscale) = factor {
            norm = nodes.op("mul", &[norm, unscale])?;
        }
        nodes.output(names::GRADIENT_NORM, norm);
        let clipping = nodes.clipping(norm, clip)?;
        factor = Some(match factor {
            Some(unscale) => nodes.op("mul", &[unscale, clipping])?,
            None => clipping,
        });
    }
    if let Some(skip) = statistics.not_finite {
        let (one, zero) = (nodes.constant(1.0, DType::F32)?, nodes.constant(0.0, DType::F32)?);
        let flag = nodes.op("where", &[skip, one, zero])?;
        nodes.output(names::FOUND_INFINITE, flag);
    }
    if let (Some(options), Some(scale), Some(skip)) =
        (options.loss_scale, scale, statistics.not_finite)
    {
        nodes.adapt_loss_scale(scale, skip, options.growth_interval)?;
    }

    if program.state(names::APPLIED_STEPS).is_none() {
        program.states.push(scalar_state(names::APPLIED_STEPS, DType::I64, 0.0));
    }
    let applied = nodes.state(names::APPLIED_STEPS, DType::I64);
    let one = nodes.constant(1.0, DType::I64)?;
    let next = nodes.op("add", &[applied, one])?;
    let attributes = Attributes::new().dtype("dtype", DType::F32);
    let step = nodes.op_with("cast", attributes, &[next])?;
    let applied = match statistics.not_finite {
        Some(skip) => nodes.op("where", &[skip, applied, next])?,
        None => next,
    };
    nodes.update(names::APPLIED_STEPS, applied);
    Ok(Scalars { learning_rate, step, factor, skip: statistics.not_finite })
}

/// What is known of the whole gradient, on all ranks alike.
struct Statistics {
    sum_of_squares: Option<Value>,
    not_finite: Option<Value>,
}

struct Nodes<'a> {
    function: &'a mut Function,
    site: Site,
}

impl Nodes<'_> {
    fn graph(&mut self) -> &mut Graph {
        &mut self.function.graph
    }

    fn op(&mut self, name: &str, inputs: &[Value]) -> Result<Value, GraphError> {
        self.op_with(name, Attributes::new(), inputs)
    }

    fn op_with(
        &mut self,
        name: &str,
        attributes: Attributes,
        inputs: &[Value],
    ) -> Result<Value, GraphError> {
        let site = self.site.clone();
        self.graph().op1(name, attributes, inputs, site)
    }

    fn constant(&mut self, value: f64, dtype: DType) -> Result<Value, GraphError> {
        let site = self.site.clone();
        constant(self.graph(), value, dtype, &site)
    }

    fn state(&mut self, name: &str, dtype: DType) -> Value {
        self.graph().state(name, Type::scalar(dtype))
    }

    fn input(&mut self, name: &str) -> Value {
        let site = self.site.clone();
        let value = self.graph().input(name, Type::scalar(DType::F32), site);
        let kind = InputKind::Scalar;
        self.function.inputs.push(FunctionInput { name: name.to_owned(), value, kind });
        value
    }

    fn output(&mut self, name: &str, value: Value) {
        self.function.outputs.push(FunctionOutput { name: name.to_owned(), value });
    }

    fn update(&mut self, state: &str, value: Value) {
        self.function.updates.push(Update { state: state.to_owned(), value });
    }

    fn statistics(
        &mut self,
        gradients: &[Value],
        norm: bool,
        finite: bool,
        sharded: bool,
    ) -> Result<Statistics, GraphError> {
        let sum = if norm { Some(self.op("sum_of_squares", gradients)?) } else { None };
        let finite = if finite { Some(self.op("all_finite", gradients)?) } else { None };
        let Some(finite) = finite else {
            let sum_of_squares = match sum {
                Some(sum) if sharded => Some(self.sum_over_ranks(&[sum])?[0]),
                sum => sum,
            };
            return Ok(Statistics { sum_of_squares, not_finite: None });
        };
        if !sharded {
            let not_finite = Some(self.op("logical_not", &[finite])?);
            return Ok(Statistics { sum_of_squares: sum, not_finite });
        }
        let (one, zero) = (self.constant(1.0, DType::F32)?, self.constant(0.0, DType::F32)?);
        let flag = self.op("where", &[finite, zero, one])?;
        let own: Vec<Value> = [flag].into_iter().chain(sum).collect();
        let all = self.sum_over_ranks(&own)?;
        let not_finite = Some(self.op("greater", &[all[0], zero])?);
        Ok(Statistics { sum_of_squares: all.get(1).copied(), not_finite })
    }

    /// Sums f32 scalars over ranks in one exchange.
    fn sum_over_ranks(&mut self, scalars: &[Value]) -> Result<Vec<Value>, GraphError> {
        let offsets: Vec<usize> = (0..scalars.len()).collect();
        let attributes = Attributes::new().sizes("offsets", &offsets);
        let attributes = attributes.int("total", scalars.len() as i64);
        let packed = self.op_with("pack", attributes, scalars)?;
        let site = self.site.clone();
        let summed = self.graph().collective(Collective::ALL_REDUCE_SUM, packed, site)?;
        let scalar = |offset: usize| {
            let attributes = Attributes::new().int("offset", offset as i64).sizes("shape", &[]);
            self.op_with("unpack", attributes, &[summed])
        };
        (0..scalars.len()).map(scalar).collect()
    }

    /// `min(1, clip / (norm + epsilon))`.
    fn clipping(&mut self, norm: Value, clip: f64) -> Result<Value, GraphError> {
        let (clip, one) = (self.constant(clip, DType::F32)?, self.constant(1.0, DType::F32)?);
        let epsilon = self.constant(CLIP_EPSILON, DType::F32)?;
        let norm = self.op("add", &[norm, epsilon])?;
        let factor = self.op("div", &[clip, norm])?;
        self.op("minimum", &[factor, one])
    }

    /// Halves the scale on a skipped step; doubles it after `interval` steps in a row that were applied.
    fn adapt_loss_scale(
        &mut self,
        scale: Value,
        skip: Value,
        interval: u64,
    ) -> Result<(), GraphError> {
        let good = self.state(names::GOOD_STEPS, DType::I64);
        let (zero, one) = (self.constant(0.0, DType::I64)?, self.constant(1.0, DType::I64)?);
        let next = self.op("add", &[good, one])?;
        let interval = self.constant(interval as f64, DType::I64)?;
        let grows = self.op("equal", &[next, interval])?;
        let (half, two) = (self.constant(0.5, DType::F32)?, self.constant(2.0, DType::F32)?);
        let (halved, doubled) = (self.op("mul", &[scale, half])?, self.op("mul", &[scale, two])?);
        let grown = self.op("where", &[grows, doubled, scale])?;
        let new_scale = self.op("where", &[skip, halved, grown])?;
        let resets = self.op("logical_or", &[skip, grows])?;
        let new_good = self.op("where", &[resets, zero, next])?;
        self.update(names::LOSS_SCALE, new_scale);
        self.update(names::GOOD_STEPS, new_good);
        Ok(())
    }
}
