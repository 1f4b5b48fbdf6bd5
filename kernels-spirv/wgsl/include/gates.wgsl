// Compositions of exp and log1p, each operation rounded once.

fn sigmoid(x: f32) -> f32 { return div(1.0f, 1.0f + contract_exp(-x)); }

fn silu(x: f32) -> f32 { return div(x, 1.0f + contract_exp(-x)); }
