//! Graphs of a convolution and what can be fused with it. Knows tensors; no buffers and no engine.

use native::{
    DataType, Result,
    cudnn::{BatchNormGradient, Graph, Pointwise, Tensor, TensorDescription},
};

use super::shapes::Shape;

/// A convolution with what is fused into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// y = x * w.
    Forward,
    /// And the sums of y and y^2 of each channel.
    ForwardStatistics,
    /// The same of max(0, x scale + bias).
    NormalisedForwardStatistics,
    /// dx.
    DataGradient,
    /// dx through the ReLU of the normalised x, and the reductions of batch normalisation's gradient.
    DataGradientNormalisation,
    /// dw.
    WeightGradient,
    /// dw of max(0, x scale + bias).
    NormalisedWeightGradient,
}

impl Pattern {
    /// All, plain ones before what is fused with them.
    pub const ALL: [Pattern; 7] = [
        Pattern::Forward,
        Pattern::ForwardStatistics,
        Pattern::NormalisedForwardStatistics,
        Pattern::DataGradient,
        Pattern::DataGradientNormalisation,
        Pattern::WeightGradient,
        Pattern::NormalisedWeightGradient,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Forward => "fprop",
            Pattern::ForwardStatistics => "fprop+genstats",
            Pattern::NormalisedForwardStatistics => "scale-bias-ReLU+fprop+genstats",
            Pattern::DataGradient => "dgrad",
            Pattern::DataGradientNormalisation => "dgrad+dReLU+dBN",
            Pattern::WeightGradient => "wgrad",
            Pattern::NormalisedWeightGradient => "scale-bias-ReLU+wgrad",
        }
    }

    /// The pattern without what is fused into it.
    pub fn plain(self) -> Pattern {
        match self {
            Pattern::Forward
            | Pattern::ForwardStatistics
            | Pattern::NormalisedForwardStatistics => Pattern::Forward,
            Pattern::DataGradient | Pattern::DataGradientNormalisation => Pattern::DataGradient,
            Pattern::WeightGradient | Pattern::NormalisedWeightGradient => Pattern::WeightGradient,
        }
    }

    /// Whether a training step of `shape` could use it in `data_type`: fused patterns have precompiled engines in
    /// fp16 only, and the stem has neither a data gradient nor a normalised input.
    pub fn applies(self, shape: &Shape, data_type: DataType) -> bool {
        let fused = self != self.plain();
        let reads_normalised = matches!(
            self,
            Pattern::NormalisedForwardStatistics | Pattern::NormalisedWeightGradient
        );
        let for_stem = !reads_normalised && self.plain() != Pattern::DataGradient;
        (data_type == DataType::F16 || !fused) && (!shape.is_stem || for_stem)
    }
}

/// The tensors of a pattern that lie in memory; `None` where the pattern lacks them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tensors {
    /// Input of the convolution, before normalisation.
    pub x: Option<Tensor>,
    /// Filter.
    pub w: Option<Tensor>,
    /// Output.
    pub y: Option<Tensor>,
    /// Gradient of the output.
    pub dy: Option<Tensor>,
    /// Gradient of the input.
    pub dx: Option<Tensor>,
    /// Gradient of the filter.
    pub dw: Option<Tensor>,
    /// 16-bit scale and bias of the normalised input.
    pub scale_bias: Option<[Tensor; 2]>,
    /// fp32 mean, inverse deviation, scale, bias of the input's normalisation.
    pub normalisation: Option<[Tensor; 4]>,
    /// fp32 results, one value a channel: sum and sum of squares, or the five of batch normalisation's gradient.
    pub reductions: [Option<Tensor>; 5],
}

/// The graph of `pattern` for `shape`.
pub fn graph(shape: &Shape, pattern: Pattern, data_type: DataType) -> Result<(Graph, Tensors)> {
    let (g, c) = (&shape.geometry, &shape.convolution);
    let image = TensorDescription::channels_last(data_type, [g.n, g.c, g.h, g.w]);
    let filter = TensorDescription::channels_last(data_type, [g.k, g.c, g.r, g.s]);
    let output = TensorDescription::channels_last(data_type, [g.n, g.k, g.p, g.q]);
    let mut graph = Graph::new();
    let mut t = Tensors::default();
    match pattern {
        Pattern::Forward | Pattern::ForwardStatistics | Pattern::NormalisedForwardStatistics => {
            let mut x = graph.tensor(&image)?;
            t.x = Some(x);
            if pattern == Pattern::NormalisedForwardStatistics {
                x = normalised(&mut graph, &mut t, x, &image, g.c)?;
            }
            let (w, y) = (graph.tensor(&filter)?, graph.tensor(&output)?);
            (t.w, t.y) = (Some(w), Some(y));
            graph.convolution(x, w, y, c)?;
            if pattern != Pattern::Forward {
                let channel = TensorDescription::per_channel(DataType::F32, g.k);
                let (sum, squares) = (graph.tensor(&channel)?, graph.tensor(&channel)?);
                graph.statistics(y, sum, squares)?;
                (t.reductions[0], t.reductions[1]) = (Some(sum), Some(squares));
            }
        }
        Pattern::DataGradient => {
            let (dy, w) = (graph.tensor(&output)?, graph.tensor(&filter)?);
            let dx = graph.tensor(&image)?;
            (t.dy, t.w, t.dx) = (Some(dy), Some(w), Some(dx));
            graph.convolution_data_gradient(dy, w, dx, c)?;
        }
        Pattern::DataGradientNormalisation => {
            normalisation_gradient(&mut graph, &mut t, shape, &[image, filter, output])?;
        }
        Pattern::WeightGradient | Pattern::NormalisedWeightGradient => {
            let mut x = graph.tensor(&image)?;
            t.x = Some(x);
            if pattern == Pattern::NormalisedWeightGradient {
                x = normalised(&mut graph, &mut t, x, &image, g.c)?;
            }
            let (dy, dw) = (graph.tensor(&output)?, graph.tensor(&filter)?);
            (t.dy, t.dw) = (Some(dy), Some(dw));
            graph.convolution_weight_gradient(x, dy, dw, c)?;
        }
    }
    Ok((graph, t))
}

/// max(0, x scale + bias) as a virtual tensor; precompiled engines want all of it in 16 bits.
fn normalised(
    graph: &mut Graph,
    t: &mut Tensors,
    x: Tensor,
    image: &TensorDescription,
    channels: i64,
) -> Result<Tensor> {
    let channel = TensorDescription::per_channel(image.data_type, channels);
    let (scale, bias) = (graph.tensor(&channel)?, graph.tensor(&channel)?);
    t.scale_bias = Some([scale, bias]);
    let scaled = graph.virtual_tensor(image)?;
    graph.pointwise(Pointwise::Multiply, x, Some(scale), scaled)?;
    let shifted = graph.virtual_tensor(image)?;
    graph.pointwise(Pointwise::Add, scaled, Some(bias), shifted)?;
    let active = graph.virtual_tensor(image)?;
    graph.pointwise(Pointwise::Relu, shifted, None, active)?;
    Ok(active)
}

/// dx = dgrad(dy, w) where ((x - mean) inverse scale + bias) > 0, and the reductions over dx and x.
fn normalisation_gradient(
    graph: &mut Graph,
    t: &mut Tensors,
    shape: &Shape,
    [image, filter, output]: &[TensorDescription; 3],
) -> Result<()> {
    let channel = TensorDescription::per_channel(DataType::F32, shape.geometry.c);
    let (dy, w) = (graph.tensor(output)?, graph.tensor(filter)?);
    let x = graph.tensor(image)?;
    let mut per_channel = || graph.tensor(&channel);
    let (mean, inverse) = (per_channel()?, per_channel()?);
    let (scale, bias) = (per_channel()?, per_channel()?);
    let wide = image.of(DataType::F32);
    let gradient = graph.virtual_tensor(&wide)?;
    graph.convolution_data_gradient(dy, w, gradient, &shape.convolution)?;
    let mut value = x;
    for (operation, operand) in [
        (Pointwise::Subtract, mean),
        (Pointwise::Multiply, inverse),
        (Pointwise::Multiply, scale),
        (Pointwise::Add, bias),
    ] {
        let next = graph.virtual_tensor(&wide)?;
        graph.pointwise(operation, value, Some(operand), next)?;
        value = next;
    }
    let dx = graph.tensor(image)?;
    graph.relu_gradient(gradient, value, dx)?;
    let mut written = || graph.tensor(&channel);
    let five = [written()?, written()?, written()?, written()?, written()?];
    let [scale_gradient, bias_gradient, dy_scale, x_scale, constant] = five;
    let reductions = BatchNormGradient {
        mean,
        inverse_deviation: inverse,
        scale,
        scale_gradient,
        bias_gradient,
        dy_scale,
        x_scale,
        bias: constant,
    };
    graph.batch_norm_gradient(dx, x, &reductions)?;
    (t.dy, t.w, t.x, t.dx) = (Some(dy), Some(w), Some(x), Some(dx));
    t.normalisation = Some([mean, inverse, scale, bias]);
    t.reductions = five.map(Some);
    Ok(())
}
