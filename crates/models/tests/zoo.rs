//! The zoo as files and people see it: names, sizes, functions, mistakes.

use graph::names;
use models::{ModelError, SettingValue, Settings, Shapes, program, zoo};

#[test]
fn presets_have_the_published_numbers_of_parameters() {
    let family = zoo::family("gpt2").expect("in the zoo");
    for (preset, parameters) in [
        ("124m", 124_439_808),
        ("355m", 354_823_168),
        ("774m", 774_030_080),
        ("1558m", 1_557_611_200),
    ] {
        let model = family.model(&Settings::of(family, Some(preset))).expect("a model");
        let shapes = Shapes { batch: 1, length: 1024, generate: false };
        let program = program(&graph::ops::registry(), model.as_ref(), shapes).expect("traces");
        let found: usize = program.states.iter().map(|state| state.ty.shape.elements()).sum();
        assert_eq!(found, parameters, "{preset}");
    }
}

#[test]
fn parameters_have_hugging_faces_names_and_shapes() {
    let family = zoo::family("gpt2").expect("in the zoo");
    let settings = Settings::of(family, None)
        .with("layers", SettingValue::Integer(1))
        .with("tied", SettingValue::Boolean(false));
    let model = family.model(&settings).expect("a model");
    let shapes = Shapes { batch: 2, length: 128, generate: true };
    let program = program(&graph::ops::registry(), model.as_ref(), shapes).expect("traces");
    let found: Vec<String> =
        program.states.iter().map(|state| format!("{} {}", state.name, state.ty)).collect();
    assert_eq!(
        found,
        [
            "wte.weight f32[256, 128]",
            "wpe.weight f32[128, 128]",
            "h.0.ln_1.weight f32[128]",
            "h.0.ln_1.bias f32[128]",
            "h.0.attn.c_attn.weight f32[128, 384]",
            "h.0.attn.c_attn.bias f32[384]",
            "h.0.attn.c_proj.weight f32[128, 128]",
            "h.0.attn.c_proj.bias f32[128]",
            "h.0.ln_2.weight f32[128]",
            "h.0.ln_2.bias f32[128]",
            "h.0.mlp.c_fc.weight f32[128, 512]",
            "h.0.mlp.c_fc.bias f32[512]",
            "h.0.mlp.c_proj.weight f32[512, 128]",
            "h.0.mlp.c_proj.bias f32[128]",
            "ln_f.weight f32[128]",
            "ln_f.bias f32[128]",
            "lm_head.weight f32[256, 128]",
        ]
    );
    let functions: Vec<&str> =
        program.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(functions, [names::TRAIN, names::EVALUATE, names::GENERATE]);
}

#[test]
fn settings_that_do_not_fit_are_named() {
    let family = zoo::family("gpt2").expect("in the zoo");
    let error =
        family.model(&Settings::of(family, None).with("heads", SettingValue::Integer(3))).err();
    match error {
        Some(ModelError::Setting { setting, message }) => {
            assert_eq!(setting, "heads");
            assert_eq!(message, "found 3, expected a divisor of model.width = 128");
        }
        other => panic!("{other:?}"),
    }
}
