//! From a finished graph to something that runs: heuristics, engine configurations, plans, bound addresses.
//! Knows no pattern and makes no choice.

use std::{ffi::c_void, sync::Arc};

use cudarc::cudnn::sys::cudnnBackendAttributeType_t as Type;

use super::{
    calls::Cudnn,
    descriptor::{Attribute, Class, Descriptor},
    graph::{Storage, Tensor},
    place::{Handle, Place},
};
use crate::{Error, Result, library::call, memory::DevicePointer};

/// More than any engine has.
const MOST_KNOBS: usize = 64;

/// How the library orders its proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Heuristic {
    /// Fast and good for most graphs.
    A,
    /// Slower; for many graphs the same as `A`.
    B,
    /// Engines that support most, expected to be slow.
    Fallback,
}

impl Heuristic {
    /// All, in the order in which to ask.
    pub const ALL: [Heuristic; 3] = [Heuristic::A, Heuristic::B, Heuristic::Fallback];

    fn number(self) -> i32 {
        match self {
            Heuristic::A => 3,
            Heuristic::B => 1,
            Heuristic::Fallback => 2,
        }
    }
}

/// A finished graph.
pub struct OperationGraph {
    descriptor: Descriptor,
    parts: Arc<Vec<Descriptor>>,
    storage: Arc<Vec<Storage>>,
}

/// An engine with its settings for one graph.
pub struct EngineConfig {
    descriptor: Descriptor,
    /// The engine's descriptor where this crate made it; the configuration points at it.
    _engine: Vec<Descriptor>,
}

/// What is known of an engine configuration; engine and knobs are enough to make it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineFacts {
    /// The engine's number for this graph.
    pub engine: i64,
    /// Knob numbers with their values, in order.
    pub knobs: Vec<(i32, i64)>,
    /// Whether the plan is compiled when it is built (seconds instead of milliseconds).
    pub compiles_at_run_time: bool,
    /// Whether the library says that results may differ between runs.
    pub nondeterministic: bool,
    /// Bytes of workspace, where the library can tell before the plan is built.
    pub workspace: Option<i64>,
}

impl OperationGraph {
    pub(super) fn new(
        descriptor: Descriptor,
        parts: Arc<Vec<Descriptor>>,
        storage: Vec<Storage>,
    ) -> OperationGraph {
        OperationGraph { descriptor, parts, storage: Arc::new(storage) }
    }

    /// How many engines know this graph's pattern; few of them support its details.
    pub fn engine_count(&self) -> Result<i64> {
        self.descriptor.integer(Attribute::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)
    }

    /// The library's proposals, best first. Empty where nothing supports the graph.
    pub fn propose(&self, place: Place<'_>, heuristic: Heuristic) -> Result<Vec<EngineConfig>> {
        use Attribute as A;
        let mut asked = Descriptor::new(Class::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        asked
            .set_descriptors(A::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[self.descriptor.raw()])?;
        let mode = Type::CUDNN_TYPE_HEUR_MODE;
        asked.set_as(A::CUDNN_ATTR_ENGINEHEUR_MODE, mode, &[heuristic.number()])?;
        match place {
            Place::Device(handle) => handle.bind()?,
            Place::Properties(properties) => asked.set_descriptors(
                A::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                &[properties.descriptor().raw()],
            )?,
        }
        asked.finalize()?;
        let class = Class::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
        let found = asked.descriptors(A::CUDNN_ATTR_ENGINEHEUR_RESULTS, class)?;
        let wrap = |descriptor| EngineConfig { descriptor, _engine: vec![] };
        Ok(found.into_iter().map(wrap).collect())
    }

    /// A configuration by engine number and knobs; knobs left out have the engine's defaults. Fails where the
    /// engine does not support the graph.
    pub fn configure(
        &self,
        place: Place<'_>,
        engine: i64,
        knobs: &[(i32, i64)],
    ) -> Result<EngineConfig> {
        use Attribute as A;
        let mut made = Descriptor::new(Class::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        made.set_descriptors(A::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[self.descriptor.raw()])?;
        made.set(A::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[engine])?;
        match place {
            Place::Device(handle) => handle.bind()?,
            Place::Properties(properties) => made.set_descriptors(
                A::CUDNN_ATTR_ENGINE_DEVICEPROP,
                &[properties.descriptor().raw()],
            )?,
        }
        made.finalize()?;
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
        descriptor.set_descriptors(A::CUDNN_ATTR_ENGINECFG_ENGINE, &[made.raw()])?;
        let mut kept = vec![];
        for (knob, value) in knobs {
            let mut choice = Descriptor::new(Class::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?;
            let kind = Type::CUDNN_TYPE_KNOB_TYPE;
            choice.set_as(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, kind, &[*knob])?;
            choice.set(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[*value])?;
            choice.finalize()?;
            kept.push(choice);
        }
        if !kept.is_empty() {
            let raw: Vec<_> = kept.iter().map(Descriptor::raw).collect();
            descriptor.set_descriptors(A::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &raw)?;
        }
        descriptor.finalize()?;
        kept.push(made);
        Ok(EngineConfig { descriptor, _engine: kept })
    }

    /// Builds a plan. Takes seconds where the engine compiles at run time.
    pub fn plan(&self, place: Place<'_>, config: &EngineConfig) -> Result<Plan> {
        use Attribute as A;
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        match place {
            Place::Device(handle) => {
                handle.bind()?;
                let kind = Type::CUDNN_TYPE_HANDLE;
                descriptor.set_as(A::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, kind, &[handle.raw()])?;
            }
            Place::Properties(properties) => descriptor.set_descriptors(
                A::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                &[properties.descriptor().raw()],
            )?,
        }
        descriptor.set_descriptors(
            A::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
            &[config.descriptor.raw()],
        )?;
        descriptor.finalize()?;
        Plan::new(descriptor, self)
    }

    /// A plan from the text of an equal graph's plan ([`Plan::json`]), made by the same version of the library;
    /// saves the compilation.
    pub fn plan_from_json(&self, handle: &Handle, text: &str) -> Result<Plan> {
        use Attribute as A;
        handle.bind()?;
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        let kind = Type::CUDNN_TYPE_HANDLE;
        descriptor.set_as(A::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, kind, &[handle.raw()])?;
        descriptor.set(A::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text.as_bytes())?;
        descriptor.finalize()?;
        Plan::new(descriptor, self)
    }
}

impl EngineConfig {
    /// Engine, knobs and notes.
    pub fn facts(&self) -> Result<EngineFacts> {
        use Attribute as A;
        const RUNTIME_COMPILATION: i32 = 0;
        const NONDETERMINISTIC: i32 = 4;
        let class = Class::CUDNN_BACKEND_ENGINE_DESCRIPTOR;
        let engines = self.descriptor.descriptors(A::CUDNN_ATTR_ENGINECFG_ENGINE, class)?;
        let engine = engines
            .first()
            .ok_or_else(|| Error::Argument("an engine configuration without an engine".into()))?;
        let notes = |name, kind| engine.numbers(name, kind).unwrap_or_default();
        let behaviour = notes(A::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE);
        let numerical = notes(A::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
        Ok(EngineFacts {
            engine: engine.integer(A::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?,
            knobs: self.knobs()?,
            compiles_at_run_time: behaviour.contains(&RUNTIME_COMPILATION),
            nondeterministic: numerical.contains(&NONDETERMINISTIC),
            workspace: self.descriptor.integer(A::CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE).ok(),
        })
    }

    fn knobs(&self) -> Result<Vec<(i32, i64)>> {
        use Attribute as A;
        let class = Class::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        let name = A::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
        let choices = self.descriptor.descriptors_up_to(name, class, MOST_KNOBS)?;
        let mut knobs = vec![];
        for choice in &choices {
            let kind = Type::CUDNN_TYPE_KNOB_TYPE;
            let mut knob = [0i32];
            choice.read_as(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, kind, &mut knob)?;
            let value = choice.integer(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
            knobs.push((knob[0], value));
        }
        knobs.sort_unstable();
        Ok(knobs)
    }
}

/// A graph with a chosen engine, ready to be bound to addresses.
pub struct Plan {
    descriptor: Arc<Descriptor>,
    workspace: usize,
    storage: Arc<Vec<Storage>>,
    /// The plan points at the graph's descriptors.
    parts: Arc<Vec<Descriptor>>,
}

impl Plan {
    fn new(descriptor: Descriptor, graph: &OperationGraph) -> Result<Plan> {
        let bytes = descriptor.integer(Attribute::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok(Plan {
            descriptor: Arc::new(descriptor),
            workspace: bytes.max(0) as usize,
            storage: Arc::clone(&graph.storage),
            parts: Arc::clone(&graph.parts),
        })
    }

    /// Bytes of workspace that an execution needs.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// The plan as text, for a cache.
    pub fn json(&self) -> Result<String> {
        self.descriptor.text(Attribute::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
    }

    /// Fixes the addresses. Every tensor in device memory needs one; `workspace` has [`Plan::workspace`] bytes.
    pub fn bind(
        &self,
        addresses: &[(Tensor, DevicePointer)],
        workspace: DevicePointer,
    ) -> Result<Bound> {
        use Attribute as A;
        // On the heap and never moved: the library reads a scalar through its address at every execution.
        let scalars: Box<[f32]> = self
            .storage
            .iter()
            .filter_map(|storage| match storage {
                Storage::Scalar(value) => Some(*value),
                _ => None,
            })
            .collect();
        let mut next_scalar = scalars.iter();
        let (mut identifiers, mut pointers): (Vec<i64>, Vec<*mut c_void>) = (vec![], vec![]);
        for (index, storage) in self.storage.iter().enumerate() {
            let tensor = Tensor(index);
            let pointer = match storage {
                Storage::Virtual => continue,
                Storage::Scalar(_) => next_scalar.next().map_or(std::ptr::null_mut(), |value| {
                    std::ptr::from_ref(value).cast_mut().cast()
                }),
                Storage::Device => {
                    let found = addresses.iter().find(|(bound, _)| *bound == tensor);
                    let Some((_, address)) = found else {
                        return Err(Error::Argument(format!("{tensor:?} has no address")));
                    };
                    address.raw()
                }
            };
            identifiers.push(tensor.identifier());
            pointers.push(pointer);
        }
        let mut pack = Descriptor::new(Class::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(A::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &identifiers)?;
        pack.set(A::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers)?;
        pack.set(A::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace.raw()])?;
        pack.finalize()?;
        Ok(Bound {
            cudnn: Cudnn::get()?,
            pack,
            plan: Arc::clone(&self.descriptor),
            _scalars: scalars,
            _parts: Arc::clone(&self.parts),
        })
    }
}

/// A plan with its addresses.
pub struct Bound {
    cudnn: &'static Cudnn,
    pack: Descriptor,
    plan: Arc<Descriptor>,
    _scalars: Box<[f32]>,
    _parts: Arc<Vec<Descriptor>>,
}

impl Bound {
    /// Runs it in the order of the handle's stream. May be captured into a CUDA graph.
    pub fn execute(&self, handle: &Handle) -> Result<()> {
        handle.bind()?;
        call!(self.cudnn, cudnnBackendExecute(handle.raw(), self.plan.raw(), self.pack.raw()))
    }
}
