// float_bits: a float32 as the word that holds it, and back. Only the control takes it.

fn f32_of(word: u32) -> f32 {
    return bitcast<f32>(word);
}

fn word_of(value: f32) -> u32 {
    return bitcast<u32>(value);
}
