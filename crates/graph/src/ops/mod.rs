//! The operators, one file each (families of scalar functions share one, with a row each), and the list of them.

use std::sync::Arc;

use crate::{OpDefinition, Registry};

mod accumulate;
mod all_finite;
mod attention;
mod attention_gradient;
mod binary;
mod broadcast_to;
mod cast;
mod comparison;
mod concat;
mod constant;
mod cross_entropy;
mod cross_entropy_gradient;
mod dropout;
mod embedding;
mod embedding_gradient;
mod gather;
mod gather_gradient;
mod gelu;
mod gelu_gradient;
mod identity;
mod iota;
mod is_finite;
mod layer_norm;
mod layer_norm_gradient;
mod linear;
mod logical;
mod matmul;
mod pack;
mod permute;
mod power;
mod reduce;
mod reduce_max;
mod reshape;
mod segment_fill;
mod shard;
mod slice;
mod softmax;
mod softmax_gradient;
mod sum_of_squares;
mod support;
mod unary;
mod unpack;
mod where_;

/// All operators of this crate.
pub fn registry() -> Registry {
    let list: Vec<Arc<dyn OpDefinition>> = vec![
        Arc::new(accumulate::Accumulate),
        Arc::new(all_finite::AllFinite),
        Arc::new(attention::Attention),
        Arc::new(attention_gradient::AttentionGradient),
        Arc::new(binary::ADD),
        Arc::new(binary::SUB),
        Arc::new(binary::MUL),
        Arc::new(binary::DIV),
        Arc::new(binary::MAXIMUM),
        Arc::new(binary::MINIMUM),
        Arc::new(broadcast_to::BroadcastTo),
        Arc::new(cast::Cast),
        Arc::new(comparison::EQUAL),
        Arc::new(comparison::LESS),
        Arc::new(comparison::LESS_EQUAL),
        Arc::new(comparison::GREATER),
        Arc::new(concat::Concat),
        Arc::new(constant::Constant),
        Arc::new(cross_entropy::CrossEntropy),
        Arc::new(cross_entropy_gradient::CrossEntropyGradient),
        Arc::new(dropout::Dropout),
        Arc::new(embedding::Embedding),
        Arc::new(embedding_gradient::EmbeddingGradient),
        Arc::new(gather::Gather),
        Arc::new(gather_gradient::GatherGradient),
        Arc::new(gelu::Gelu),
        Arc::new(gelu_gradient::GeluGradient),
        Arc::new(identity::COPY),
        Arc::new(identity::STOP_GRADIENT),
        Arc::new(iota::Iota),
        Arc::new(is_finite::IsFinite),
        Arc::new(layer_norm::LayerNorm),
        Arc::new(layer_norm_gradient::LayerNormGradient),
        Arc::new(linear::Linear),
        Arc::new(logical::AND),
        Arc::new(logical::OR),
        Arc::new(logical::NOT),
        Arc::new(matmul::Matmul),
        Arc::new(pack::Pack),
        Arc::new(permute::Permute),
        Arc::new(power::Power),
        Arc::new(reduce::SUM),
        Arc::new(reduce::MEAN),
        Arc::new(reduce_max::ReduceMax),
        Arc::new(reshape::Reshape),
        Arc::new(segment_fill::SegmentFill),
        Arc::new(shard::Shard),
        Arc::new(slice::Slice),
        Arc::new(softmax::Softmax),
        Arc::new(softmax_gradient::SoftmaxGradient),
        Arc::new(sum_of_squares::SumOfSquares),
        Arc::new(unary::NEG),
        Arc::new(unary::EXP),
        Arc::new(unary::LOG),
        Arc::new(unary::SQRT),
        Arc::new(unary::RSQRT),
        Arc::new(unary::TANH),
        Arc::new(unary::SIGMOID),
        Arc::new(unary::ABS),
        Arc::new(unary::SQUARE),
        Arc::new(unary::RELU),
        Arc::new(unpack::Unpack),
        Arc::new(where_::Where),
    ];
    Registry::new(list)
}
